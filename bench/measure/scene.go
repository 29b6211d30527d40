package measure

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/database"
	"github.com/txlock/txlock/bench/results"
	"github.com/txlock/txlock/bench/testbed"
)

// settle is the time after which a caller is assumed to be waiting for the lock. No server lists
// the waiters of all contestants.
const settle = 300 * time.Millisecond

// unlockLimit is how long an unlock may take. It is longer than that of any contestant.
const unlockLimit = 13 * time.Second

// scene is one fault at one contestant's lock. All its processes want to add to the same number.
type scene struct {
	lab        *Lab
	contestant contest.Contestant
	fault      string
	job        crew.Guard
	account    *database.Database // has the number
	proxy      testbed.Proxy      // between the holder's client and the server

	holder, waiter, second *crew.Process // waiter waits for holder, second waits behind waiter
	amounts                map[*crew.Process]int64
	guarded                map[*crew.Process]crew.Guarded

	outcome results.FaultTrial
	err     error
}

func (l *Lab) newScene(c contest.Contestant, fault string, trial int) *scene {
	return &scene{
		lab: l, contestant: c, fault: fault,
		amounts: make(map[*crew.Process]int64), guarded: make(map[*crew.Process]crew.Guarded),
		job: crew.Guard{
			Entrant: l.entrant(c, l.Faults.Lease, 1),
			Key:     faultKey(c, fault, trial), Account: faultKey(c, fault, trial),
		},
	}
}

// stage starts the processes and connects them, the holder through proxies.
func (s *scene) stage(ctx context.Context) (err error) {
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	if s.account, err = s.job.Entrant.Books.Open(ctx, 1); err != nil {
		return err
	}
	if _, err = s.account.Exec(ctx, nil, "INSERT INTO "+crew.AccountTable+" (name, number) VALUES (?, 0)",
		s.job.Account); err != nil {
		return err
	}
	if s.proxy, err = s.lab.Testbed.Proxied(s.contestant.Server); err != nil {
		return err
	}
	through := s.job.Entrant
	through.Environment.Address = s.proxy.Address
	if s.contestant.Server.SQL() { // the work is on the same server
		through.Books.Address = s.proxy.Address
	}
	if s.holder, err = s.start(ctx, through, 1); err != nil {
		return err
	}
	if s.waiter, err = s.start(ctx, s.job.Entrant, base); err != nil || s.fault != results.WaiterKilled {
		return err
	}
	s.second, err = s.start(ctx, s.job.Entrant, base*base)
	return err
}

// start starts a process that is ready to ask for the lock.
func (s *scene) start(ctx context.Context, entrant crew.Entrant, amount int64) (*crew.Process, error) {
	p, err := crew.Start()
	if err != nil {
		return nil, err
	}
	job := s.job
	job.Entrant, job.Amount = entrant, amount
	s.amounts[p] = amount
	if err := p.Give(ctx, crew.Job{Guard: &job}); err != nil {
		p.Kill()
		return nil, err
	}
	return p, nil
}

// play causes the fault and observes the recovery.
func (s *scene) play(ctx context.Context) (err error) {
	defer s.end()
	s.outcome.Limit = s.lab.Faults.Limit
	if err := s.queue(ctx); err != nil {
		return err
	}
	switch s.fault {
	case results.HolderKilled:
		s.outcome.Regained, err = s.killHolder(ctx)
	case results.HolderStopped:
		s.outcome.Regained, err = s.silenceHolder(ctx, s.stop)
	case results.HolderCutOff:
		s.outcome.Regained, err = s.silenceHolder(ctx, s.cutOff)
	case results.WaiterKilled:
		s.outcome.Regained, err = s.killWaiter(ctx)
	}
	if err != nil {
		return err
	}
	number, err := s.account.Number(ctx, nil, "SELECT number FROM "+crew.AccountTable+" WHERE name = ?", s.job.Account)
	for p, guarded := range s.guarded {
		times := number / s.amounts[p] % base
		if guarded.Written && times != 1 || times > 1 {
			s.outcome.Lost++
		}
	}
	s.outcome.Told = s.guarded[s.holder].Told
	return err
}

// base is the base in which the sum is read: the updates of each process are a digit of their own.
const base = 1000

// killHolder kills the holder, and returns how long the waiter takes to enter.
func (s *scene) killHolder(ctx context.Context) (time.Duration, error) {
	began := crew.Now()
	if err := s.holder.Signal(syscall.SIGKILL); err != nil {
		return 0, err
	}
	regained, err := s.awaitInside(ctx, s.waiter, began)
	if err != nil || regained < 0 {
		return regained, err
	}
	return regained, s.finish(ctx, s.waiter)
}

// fault begins something that keeps the holder from doing anything. end undoes it.
type fault func() (end func() error, err error)

func (s *scene) stop() (func() error, error) {
	return func() error { return s.holder.Signal(syscall.SIGCONT) }, s.holder.Signal(syscall.SIGSTOP)
}

func (s *scene) cutOff() (func() error, error) {
	release := s.proxy.Hold()
	return func() error {
		release()
		return nil
	}, nil
}

// silenceHolder silences a holder that has read the number. The waiter adds its amount if it gets
// the lock. Then the holder continues, and writes the sum of what it has read.
func (s *scene) silenceHolder(ctx context.Context, begin fault) (regained time.Duration, err error) {
	began := crew.Now()
	end, err := begin()
	if err != nil {
		return 0, err
	}
	ended := false
	defer func() {
		if !ended {
			err = errors.Join(err, end())
		}
	}()
	regained, err = s.awaitInside(ctx, s.waiter, began)
	if err != nil {
		return 0, err
	}
	if regained >= 0 {
		if err := s.finish(ctx, s.waiter); err != nil {
			return 0, err
		}
	}
	// A holder that is cut off from the lock, but not from its work, continues now. Any other
	// continues when the fault has ended.
	if err := s.holder.Tell(crew.OnIt); err != nil {
		return 0, err
	}
	crew.Wait(ctx, settle)
	ended = true
	if err := end(); err != nil {
		return 0, err
	}
	if err := s.await(ctx, s.holder); err != nil || regained >= 0 {
		return regained, err
	}
	if _, err := s.waiter.Await(ctx, crew.Inside, s.lab.Faults.Limit); err != nil {
		return 0, fmt.Errorf("nobody got the lock after the fault had ended: %w", err)
	}
	return regained, s.finish(ctx, s.waiter)
}

// killWaiter kills the waiter, lets the holder end, and returns how long the second waiter takes to
// enter.
func (s *scene) killWaiter(ctx context.Context) (time.Duration, error) {
	if err := s.waiter.Signal(syscall.SIGKILL); err != nil {
		return 0, err
	}
	crew.Wait(ctx, settle)
	if err := s.holder.Tell(crew.OnIt); err != nil {
		return 0, err
	}
	left, err := s.holder.Await(ctx, crew.Left, s.lab.Faults.Limit)
	if err != nil {
		return 0, err
	}
	regained, err := s.awaitInside(ctx, s.second, left.At)
	if err != nil || regained < 0 {
		return regained, err
	}
	return regained, errors.Join(s.awaitDone(ctx, s.holder, left), s.finish(ctx, s.second))
}

// queue lets the holder get the lock, and the others wait for it in order.
func (s *scene) queue(ctx context.Context) error {
	if err := s.holder.Tell(crew.Go); err != nil {
		return err
	}
	if _, err := s.holder.Await(ctx, crew.Inside, s.lab.Faults.Limit); err != nil {
		return fmt.Errorf("the first holder: %w", err)
	}
	for _, p := range []*crew.Process{s.waiter, s.second} {
		if p == nil {
			continue
		}
		if err := p.Tell(crew.Go); err != nil {
			return err
		}
		if _, err := p.Await(ctx, crew.Asking, s.lab.Faults.Limit); err != nil {
			return err
		}
		crew.Wait(ctx, settle)
	}
	return nil
}

// awaitInside returns how long after since a process entered, or -1 if that takes too long. If it
// was inside already, which no lock should allow, the result is 0.
func (s *scene) awaitInside(ctx context.Context, p *crew.Process, since int64) (time.Duration, error) {
	m, err := p.Await(ctx, crew.Inside, s.lab.Faults.Limit)
	if errors.Is(err, crew.ErrLate) {
		return -1, nil
	}
	return max(0, time.Duration(m.At-since)), err
}

// finish lets a process that is inside write and release.
func (s *scene) finish(ctx context.Context, p *crew.Process) error {
	if err := p.Tell(crew.OnIt); err != nil {
		return err
	}
	return s.await(ctx, p)
}

// await waits until a process has released, and records its report. A process whose unlock does not
// return has written all the same.
func (s *scene) await(ctx context.Context, p *crew.Process) error {
	left, err := p.Await(ctx, crew.Left, unlockLimit)
	if err != nil {
		return err
	}
	return s.awaitDone(ctx, p, left)
}

func (s *scene) awaitDone(ctx context.Context, p *crew.Process, left crew.Message) error {
	m, err := p.Await(ctx, crew.Done, unlockLimit)
	if errors.Is(err, crew.ErrLate) {
		m, err = left, nil
	}
	if err == nil {
		s.guarded[p] = *m.Guarded
	}
	return err
}

func (s *scene) end() {
	for _, p := range []*crew.Process{s.holder, s.waiter, s.second} {
		if p != nil {
			p.Kill()
		}
	}
	if s.proxy.Proxy != nil {
		_ = s.proxy.Close()
	}
	if s.account != nil {
		_ = s.account.Close()
	}
}
