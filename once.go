package txlock

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
)

// Once is work that must not be done twice, by whichever process: an order, a message that is
// delivered again, a job of each day.
type Once[Tx any] struct {
	mutex  *Mutex[Tx] // of key
	key    string
	period int64 // in microseconds; 0: for ever
	marker [32]byte
	answer *[]byte // what OnceValue keeps with the marker, and reads there; nil: nothing
}

func (o *Once[Tx]) made() *Mutex[Tx] { return made(o.mutex, "Once: Locker.Once") }

// Once names work that is to be done once. A key is any bytes, at least one. The database keeps a
// hash of each key that was done, until [Once.Forget] or [Locker.Sweep]. What must be done once has
// to be in this database, in the transaction of the work or of DoTx: work that calls another system
// may run again after a crash, so send the key there, too.
func (l *Locker[Tx]) Once(key string) *Once[Tx] {
	o := l.once(key, "once:", 0)
	if key == "" {
		o.mutex.err = errors.New("the key is empty")
	}
	return o
}

func (l *Locker[Tx]) once(key, kind string, period time.Duration) *Once[Tx] {
	// The marker is part of what all clients agree on: changing it would let two versions of a
	// program do one thing twice.
	encoded := binary.BigEndian.AppendUint64([]byte("txlock once 1\x00"), uint64(period))
	m := &Mutex[Tx]{locker: l, target: l.slots(kind + key)}
	return &Once[Tx]{m, key, period.Microseconds(), sha256.Sum256(append(encoded, key...)), nil}
}

// Per returns a copy for work that is to be done once in each window of length d, at least a second
// and whole microseconds. Windows count from the Unix epoch, by the database's clock, which is read
// behind the lock. Once(k), Once(k).Per(d) and Once(k).Per(e) are different work. docs/once.md says
// what a clock that is set back does.
func (o *Once[Tx]) Per(d time.Duration) *Once[Tx] {
	m := o.made()
	per := m.locker.once(o.key, "once:"+d.String()+":", max(d, 0))
	per.mutex.within, per.mutex.retries, per.mutex.err = m.within, m.retries, m.err
	if m.err == nil && (d < time.Second || d%time.Microsecond != 0) {
		per.mutex.err = fmt.Errorf("Per(%v): the period must be at least %v, and whole microseconds", d, time.Second)
	}
	return per
}

// Within returns a copy that waits at most d for another that does the work, and for a connection
// of the pool. d must be positive.
func (o *Once[Tx]) Within(d time.Duration) *Once[Tx] { return o.by(o.made().Within(d)) }

// Retry returns a copy whose Do, TryDo and Forget run again: see [Mutex.Retry].
func (o *Once[Tx]) Retry(n int) *Once[Tx] { return o.by(o.made().Retry(n)) }

func (o *Once[Tx]) by(m *Mutex[Tx]) *Once[Tx] { return &Once[Tx]{m, o.key, o.period, o.marker, nil} }

// Do runs work unless it was done before. Work, the lock and the marker are one transaction: ran is
// true when that is committed. It is false without an error when the work was done before, which
// takes one round trip and no lock. Who comes meanwhile waits. After an error or a panic there is
// no marker, also when work has sent COMMIT. After [ErrUnknown] call again to learn the outcome. In
// the work of a Do, both are part of its transaction.
func (o *Once[Tx]) Do(ctx context.Context, work func(ctx context.Context, tx Tx) error) (ran bool, err error) {
	return o.do(ctx, "Once.Do", false, work)
}

// TryDo is Do without waiting: [ErrNotAcquired] while another does the work.
func (o *Once[Tx]) TryDo(ctx context.Context, work func(ctx context.Context, tx Tx) error) (ran bool, err error) {
	return o.do(ctx, "Once.TryDo", true, work)
}

func (o *Once[Tx]) do(ctx context.Context, verb string, try bool, work txFunc[Tx]) (ran bool, err error) {
	switch {
	case work == nil:
		return false, o.made().wrap(verb, errors.New("nil work"))
	case o.isRunning(ctx):
		return false, nil
	}
	err = o.mutex.attempts(ctx, verb, work, func(ctx context.Context, m *Mutex[Tx], work txFunc[Tx]) error {
		once, now := *m, int64(0)
		if ran = false; !m.locker.carriesOpen(ctx) {
			begun := time.Now()
			if at, err := o.look(ctx, m, verb); err != nil || !at.IsZero() {
				return err
			}
			if m.within > 0 {
				once.within = max(m.within-time.Since(begun), 1)
			}
		}
		once.attached = &attached{
			look: o.read,
			judge: func(answer []string) (err error) {
				var at time.Time
				if now, at, err = o.doneAt(answer); !at.IsZero() {
					err = errDone
				}
				return err
			},
			last: func(k dialects.Kinds) dialects.Query { return o.mark(k, now) },
		}
		err := once.acquireAndPerform(ctx, verb, try, func(ctx context.Context, tx Tx) error {
			ran = true
			return work(context.WithValue(ctx, runningKey(o.marker), ownershipIn(ctx)), tx)
		})
		if errors.Is(err, errDone) {
			return nil
		}
		return err
	})
	return ran && err == nil, err
}

var (
	errDone  = errors.New("done before")
	errInOwn = errors.New("the work of this Once is under way: its marker comes behind it, unless it returns an error")
)

// runningKey is the key of a context of work: of the ownership with which the Once of that marker
// runs.
type runningKey [32]byte

// isRunning tells whether the work of this very Once has called.
func (o *Once[Tx]) isRunning(ctx context.Context) bool {
	in, _ := o.made().locker.carried(ctx)
	of, _ := ctx.Value(runningKey(o.marker)).(*ownership)
	return of != nil && of.session == any(in) && of.work.Err() == nil
}

// look asks without a lock when the work was done.
func (o *Once[Tx]) look(ctx context.Context, m *Mutex[Tx], verb string) (at time.Time, err error) {
	err = m.bounded(ctx, verb, func(wait context.Context) error {
		answer, err := m.locker.askKind(wait, o.read)
		if err == nil {
			_, at, err = o.doneAt(answer)
		}
		return err
	})
	return at, err
}

func (o *Once[Tx]) read(k dialects.Kinds) dialects.Query {
	if o.answer != nil {
		return k.Once.Answer.With(o.marker[:])
	}
	return k.Once.Look.With(o.marker[:])
}

// mark marks the work. In front of an answer stands the marker's time: who marks a later window
// without one leaves the former there.
func (o *Once[Tx]) mark(k dialects.Kinds, now int64) dialects.Query {
	if o.answer == nil {
		return k.Once.Mark.With(o.marker[:], now, o.period)
	}
	return k.Once.MarkWith.With(o.marker[:], now, o.period, append(timeOf(now), *o.answer...))
}

func timeOf(micros int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(micros)) }

// doneAt reads the answer to a look: the present, and when the work was done, in the present window
// or later, or zero. It reads what is kept of that time.
func (o *Once[Tx]) doneAt(answer []string) (now int64, at time.Time, err error) {
	var then int64
	line := strings.Join(answer, "")
	switch n, _ := fmt.Sscan(line, &now, &then); {
	case n == 0:
		return now, at, errors.New("the server says nothing: raise its max_allowed_packet to three times the answer")
	case n < 2 || o.period > 0 && then < now-now%o.period:
		return now, at, nil
	}
	if o.answer != nil {
		*o.answer = nil
		words := strings.Fields(line)
		timed, _ := hex.DecodeString(words[len(words)-1])
		if kept, of := bytes.CutPrefix(timed, timeOf(then)); of {
			*o.answer = kept
		}
	}
	return now, time.UnixMicro(then), nil
}

// DoTx marks the work in a transaction that the caller began and will end. First is true when it
// was not done before: do it then, in the same transaction. DoTx waits for others that mark it,
// with the errors and conditions of [Mutex.LockTx]; a rollback takes the marker away, so the next
// one is first. A second DoTx in the same transaction is false, in the same window of Per. In the
// work of this very Once it is an error.
func (o *Once[Tx]) DoTx(ctx context.Context, tx Tx) (first bool, err error) {
	const verb = "Once.DoTx"
	if o.isRunning(ctx) {
		return false, o.made().wrap(verb, errInOwn)
	}
	m := o.made().asking(func(k dialects.Kinds) dialects.Query {
		return k.Once.First.With(o.marker[:], rand.Int64()|1, o.period)
	}, func(answer []string) error {
		first = len(answer) > 0
		return nil
	})
	err = m.lockTx(ctx, verb, tx, false)
	return first, err
}

// Done tells whether the work was done, with Per in the present window, and when, by the database's
// clock. It asks the server each time, in one round trip, and waits for nobody: work that is under
// way was not done.
func (o *Once[Tx]) Done(ctx context.Context) (at time.Time, done bool, err error) {
	at, err = o.look(ctx, o.made(), "Once.Done")
	return at, !at.IsZero(), err
}

// Forget deletes the marker, if there is one, so that the next Do runs. It waits for work that is
// under way. In the work of a Do it is part of that transaction; in that of this very Once it is an
// error.
func (o *Once[Tx]) Forget(ctx context.Context) error {
	const verb = "Once.Forget"
	if o.isRunning(ctx) {
		return o.mutex.wrap(verb, errInOwn)
	}
	m := o.made().asking(func(k dialects.Kinds) dialects.Query {
		return k.Once.Forget.With(o.marker[:])
	}, func([]string) error { return nil })
	return m.do(ctx, verb, false, func(context.Context, Tx) error { return nil })
}

// Sweep deletes the markers of work that was done longer ago than age, and the rows of claims that
// ended longer ago, by the database's clock, and returns how many. What was swept is not done any
// more: age must be longer than duplicates may take to come, and than every period of [Once.Per];
// with 0 all go. Nobody waits for it for long, and it waits for nobody. After an error, the deleted
// ones are deleted.
func (l *Locker[Tx]) Sweep(ctx context.Context, age time.Duration) (deleted int64, err error) {
	const verb, most = "sweep", 100 // of a batch: others may wait for what it has locked
	if age < 0 {
		return 0, wrap(verb, fmt.Errorf("the age is negative: %v", age))
	}
	found, err := l.find(ctx, false)
	if err != nil {
		return 0, wrap(verb, err)
	}
	for _, q := range []dialects.Query{found.Kinds.Once.Sweep, found.Kinds.Claims.Sweep} {
		n, from := int64(most), int64(0)
		for n == most || errors.Is(err, ErrDeadlock) && ctx.Err() == nil {
			var answer []string
			answer, err = l.ask(ctx, q.With(from, age.Microseconds(), int64(most)))
			n = 0
			_, _ = fmt.Sscan(strings.Join(answer, ""), &n, &from) // there may be nothing to go on from
			deleted += n
		}
		// An installation may be older than claims.
		if err != nil && (q.Table == found.Kinds.Once.Table || !errors.Is(err, ErrNotInstalled)) {
			return deleted, wrap(verb, err)
		}
	}
	return deleted, nil
}
