package heartbeat_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/heartbeat"
)

const lease = 30 * time.Second

// kernel is a connection as the kernel shows it. Each test sets what it shows.
type kernel struct {
	gone    bool
	silence time.Duration
	probes  int
	asked   time.Duration // argument of the last KeepAlive
	closed  time.Time
	watcher func()
}

func (k *kernel) Watch(gone func()) (stop func()) {
	k.watcher = gone
	return func() { k.watcher = nil }
}
func (k *kernel) Look() (bool, time.Duration) { return k.gone, k.silence }
func (k *kernel) Close() error {
	k.closed = time.Now()
	return nil
}

func (k *kernel) KeepAlive(silence time.Duration) (restore func()) {
	k.probes++
	k.asked = silence
	return func() { k.probes-- }
}

var (
	errLost     = errors.New("lost")
	errReturned = errors.New("the Do has returned")
)

// patient is a session whose server answers pings as the test determines.
type patient struct {
	*heartbeat.Heartbeat
	kernel *kernel
	stop   context.CancelCauseFunc // ends its life
	lost   error
	pings  int
	answer func(ctx context.Context) error
	lostAt time.Time
}

func newPatient(work bool) *patient {
	p := &patient{kernel: &kernel{}, answer: func(context.Context) error { return nil }}
	p.Heartbeat = &heartbeat.Heartbeat{Lease: lease, Wire: p.kernel, Calls: make(chan struct{}, 1), Lose: p.lose}
	p.Life, p.stop = context.WithCancelCause(context.Background())
	if !work {
		p.Ping = func(ctx context.Context) error {
			p.pings++
			return p.answer(ctx)
		}
	}
	p.Heard(time.Now())
	p.Watch()
	return p
}

func (p *patient) lose(reason error) bool {
	if p.Life.Err() != nil {
		return false
	}
	p.lost, p.lostAt = reason, time.Now()
	p.stop(reason)
	return true
}

// lookFor calls Look for some time at the same intervals as a Locker.
func (p *patient) lookFor(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); {
		time.Sleep(lease / heartbeat.BeatsPerLease)
		go p.Look()
		synctest.Wait()
	}
}

func TestPingsKeepASessionAlive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(false)
		p.lookFor(10 * lease)
		require.NoError(t, p.lost)
		require.GreaterOrEqual(t, p.pings, 10*heartbeat.BeatsPerLease/2, "at least one in a sixth of the lease")
	})
}

func TestWhoSpeaksIsPingedAsOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(false)
		for range 100 {
			time.Sleep(lease / heartbeat.BeatsPerLease / 2)
			p.Heard(time.Now())
			p.Look()
		}
		require.Equal(t, 100/2, p.pings, "one in a twelfth of the lease: renewals come with them")
	})
}

func TestAMissingAnswerIsALossBeforeTheLeaseIsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(false)
		p.lookFor(lease)
		var heard time.Time
		p.answer = func(ctx context.Context) error {
			<-ctx.Done() // at this time, the client library closes the connection
			return ctx.Err()
		}
		before := p.pings
		heard = time.Now() // the last answered ping was sent at most a twelfth of the lease ago
		p.lookFor(2 * lease)
		require.Equal(t, before+1, p.pings, "one at a time")
		require.ErrorContains(t, p.lost, "did not answer a heartbeat")
		require.Less(t, p.lostAt.Sub(heard), lease-time.Second+1, "a margin before the server may let go")
		require.Greater(t, p.lostAt.Sub(heard), lease*3/4)
		require.False(t, p.kernel.closed.Before(p.lostAt.Add(time.Second)), "the owner learns first")
		require.False(t, p.kernel.closed.IsZero(), "and nobody waits for an answer")
	})
}

func TestAHiccupIsNoLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(false)
		p.answer = func(ctx context.Context) error {
			if p.pings%10 != 0 {
				return nil
			}
			select {
			case <-time.After(lease * 3 / 4):
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		p.lookFor(10 * lease)
		require.Greater(t, p.pings, 10)
		time.Sleep(lease) // until the last answer has arrived
		require.NoError(t, p.lost)
	})
}

func TestAFailedPingIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(false)
		p.answer = func(context.Context) error { return errors.New("broken pipe") }
		p.lookFor(lease / 4)
		require.ErrorContains(t, p.lost, "broken pipe")
		require.Equal(t, 1, p.pings, "a lost session is left alone")
	})
}

func TestTheKernelTellsOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(true)
		p.kernel.watcher()
		require.ErrorContains(t, p.lost, "the server closed the connection")
		p.Stop()
		require.Nil(t, p.kernel.watcher)
	})
}

// No ping is sent in the session of a Do, nor beside a call that waits.
func TestWhereNoPingCanBeSentTheKernelsAskEachOther(t *testing.T) {
	for name, work := range map[string]bool{"in a Do": true, "beside a call that waits": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPatient(work)
				if !work {
					p.Calls <- struct{}{}
					defer func() { <-p.Calls }()
				}
				require.Zero(t, p.kernel.probes, "not before the first look")
				p.kernel.silence = time.Hour // as after this process was stopped
				p.lookFor(lease / heartbeat.BeatsPerLease)
				require.Equal(t, 1, p.kernel.probes)
				require.Equal(t, lease, p.kernel.asked)
				require.NoError(t, p.lost, "silence from before the probes says nothing")
				p.kernel.silence = lease - 4*time.Second // the next look comes before the lease is over
				p.lookFor(5 * lease)
				require.NoError(t, p.lost)
				p.kernel.silence = lease - 3*time.Second
				p.lookFor(lease / heartbeat.BeatsPerLease)
				require.ErrorContains(t, p.lost, "nothing was heard of the server")
				require.Zero(t, p.pings)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				p.Stop()
				require.Zero(t, p.kernel.probes)
				require.False(t, p.kernel.closed.IsZero())
			})
		})
	}
}

func TestADeadConnectionIsALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(true)
		p.kernel.gone = true
		p.Look()
		require.ErrorContains(t, p.lost, "the connection is closed")
	})
}

// A call that asks the server nothing checks the clock and the connection.
func TestCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		healthy, dead, stopped, working := newPatient(false), newPatient(false), newPatient(false), newPatient(true)
		healthy.Check()
		require.NoError(t, healthy.lost)
		dead.kernel.gone = true
		dead.Check()
		require.ErrorContains(t, dead.lost, "the connection is closed")
		time.Sleep(lease)
		stopped.Check()
		require.ErrorContains(t, stopped.lost, "nothing was heard")
		working.Check()
		require.NoError(t, working.lost, "its statements are not ours")
		synctest.Wait()
		time.Sleep(2 * time.Second)
	})
}

// An answer that took long says less of the server's timer: it may have begun a while ago.
func TestASlowAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(false)
		p.Heard(time.Now().Add(-2 * lease))
		time.Sleep(lease - lease/heartbeat.BeatsPerLease - time.Second - time.Nanosecond)
		p.Check()
		require.NoError(t, p.lost)
		time.Sleep(time.Nanosecond)
		p.Check()
		require.ErrorContains(t, p.lost, "nothing was heard")
		p.Stop()
		time.Sleep(time.Second)
	})
}

// Calls that come one after the other leave the connection to nobody for longer than it takes to
// ask for the next turn. A ping that is due gets its turn all the same.
func TestAPingGetsItsTurn(t *testing.T) {
	for name, answered := range map[string]bool{"calls that are answered": true, "calls that are not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPatient(false)
				for over := time.Now().Add(10 * lease); time.Now().Before(over); {
					p.Calls <- struct{}{}
					asked := time.Now()
					go p.Look()
					time.Sleep(lease / 20)
					if answered {
						p.Heard(asked)
					}
					<-p.Calls
				}
				synctest.Wait()
				require.NoError(t, p.lost)
				require.Greater(t, p.pings, 10*heartbeat.BeatsPerLease/6)
				require.Empty(t, p.Calls, "one ping waits at a time")
			})
		})
	}
}

// A ping that waits for its turn ends with the session.
func TestAPingThatWaitsEndsWithTheSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(false)
		p.Calls <- struct{}{}
		time.Sleep(lease / 2)
		go p.Look()
		synctest.Wait()
		p.stop(errReturned)
		synctest.Wait()
		<-p.Calls
		require.Zero(t, p.pings)
		p.Stop()
	})
}

// The limits of an unanswered ping, for a lease whose tenth is less than a second.
func TestLimitsOfAPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 6 * time.Second
		life, stop := context.WithCancelCause(context.Background())
		begun, told, cut := time.Now(), time.Duration(0), time.Duration(0)
		slow := lease / 2
		ping := func(ctx context.Context) error {
			select {
			case <-ctx.Done():
				cut = time.Since(begun)
				return ctx.Err()
			case <-time.After(slow):
				return nil
			}
		}
		calls := make(chan struct{}, 1)
		h := &heartbeat.Heartbeat{
			Lease: lease, Wire: &kernel{}, Ping: ping, Life: life, Calls: calls, Lose: func(reason error) bool {
				if life.Err() != nil {
					return false
				}
				stop(reason)
				told = time.Since(begun)
				return true
			},
		}
		h.Heard(begun)
		h.Watch()
		h.Look()
		require.Zero(t, time.Since(begun), "none is due")
		time.Sleep(lease / 12)
		h.Look() // answered half a lease later, but the server's timer may have begun when the ping was sent
		slow = time.Hour
		h.Look()
		synctest.Wait()
		sent := lease / 12
		require.Equal(t, sent+lease-lease/10, told)
		require.Equal(t, sent+lease, cut)
		require.Empty(t, calls, "the connection was given back")
	})
}

func TestAPingUnderWayHasItsOwnLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(false)
		p.answer = func(context.Context) error {
			time.Sleep(lease / 2)
			return nil
		}
		p.kernel.silence = lease
		time.Sleep(lease / 6)
		go p.Look()
		synctest.Wait()
		p.Look()
		require.NoError(t, p.lost, "whatever the kernel says")
		time.Sleep(lease)
	})
}

// The owner may release as soon as it is told of the silence.
func TestNobodyWaitsForASilentServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		life, stop := context.WithCancelCause(context.Background())
		k := &kernel{silence: time.Hour}
		h := &heartbeat.Heartbeat{Lease: lease, Wire: k, Life: life}
		h.Lose = func(reason error) bool {
			first := life.Err() == nil
			stop(reason)
			h.Stop()
			return first
		}
		h.Heard(time.Now())
		h.Watch()
		h.Look() // has the kernels ask each other
		require.Zero(t, k.closed)
		h.Look()
		require.Equal(t, time.Now(), k.closed)
		k.closed = time.Time{}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, k.closed.IsZero(), "the connection may be another's")
	})
}

// A loss for another reason closes nothing.
func TestALostSessionFallsSilentNoMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(false)
		time.Sleep(lease)
		p.lose(errLost)
		p.Check()
		p.Stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.True(t, p.kernel.closed.IsZero())
	})
}

// Once the end of the session has begun, another session may soon use its connection.
func TestAStoppedHeartbeatClosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(false)
		p.stop(errReturned)
		p.Stop()
		time.Sleep(lease)
		p.Look()
		p.Check()
		time.Sleep(lease)
		synctest.Wait()
		require.Zero(t, p.pings)
		require.True(t, p.kernel.closed.IsZero())
	})
}

// If the end of a session waits for an unanswered ping, Cut closes the connection.
func TestCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPatient(false)
		p.answer = func(ctx context.Context) error {
			<-ctx.Done()
			return ctx.Err()
		}
		time.Sleep(lease / 6)
		go p.Look()
		synctest.Wait()
		start := time.Now()
		p.stop(errReturned)
		p.Stop()
		p.Cut()
		p.Calls <- struct{}{} // the ping has ended
		require.Zero(t, time.Since(start))
		require.False(t, p.kernel.closed.IsZero())
	})
}

// The connection may be another's behind Stop.
func TestNoWatchBehindStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &kernel{}
		h := &heartbeat.Heartbeat{Lease: lease, Wire: k, Life: t.Context()}
		h.Heard(time.Now())
		h.Stop()
		h.Watch()
		require.Nil(t, k.watcher)
	})
}
