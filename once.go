package txlock

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/txlock/txlock/dialects"
)

// Once is work that must not be done twice, by whichever process: an order, a message that is
// delivered again, a job of each day. A marker in the database says that it was done. It holds no
// state: many goroutines may use one value.
type Once[Tx any] struct {
	mutex *Mutex[Tx] // of key
	key   recorded[Tx]
}

// Once names work that is to be done once. A key is any bytes, at least one, of any length. The
// database keeps a hash of each key that was done, until [Once.Forget] or [Locker.Sweep]. The key
// shows in [Locker.Inspect] while it is locked, behind "once:". An empty key is an error from the
// first call. Once sends nothing.
//
// What must be done once has to be in this database, in the transaction of the work or in that of
// DoTx. Work that calls another system may run again after a crash: send the key there, too.
func (l *Locker[Tx]) Once(key string) *Once[Tx] { return l.once(key, 0, nil) }

func (l *Locker[Tx]) once(key string, period time.Duration, err error) *Once[Tx] {
	shown := "once:" + key
	if period > 0 {
		shown = "once:" + period.String() + ":" + key
	}
	marker := &dialects.Marker{Hash: markerOf(key, period), Period: period}
	o := &Once[Tx]{key: recorded[Tx]{slots: slots[Tx]{l, []string{shown}}, name: key, marker: marker}}
	if err == nil && key == "" {
		err = errors.New("the key is empty")
	}
	o.mutex = &Mutex[Tx]{locker: l, target: &o.key, err: err}
	return o
}

// markerOf hashes what is done once. The hash is part of what all clients agree on: changing it
// would let two versions of a program do one thing twice.
func markerOf(key string, period time.Duration) [32]byte {
	encoded := binary.BigEndian.AppendUint64([]byte("txlock once 1\x00"), uint64(period))
	return sha256.Sum256(append(encoded, key...))
}

// Per returns a copy for work that is to be done once in each window of length d: a day, say.
// Windows are counted from the Unix epoch, by the database's clock in UTC, which is read after the
// lock was granted: who waited across the end of a window belongs to the next one. The clocks of
// clients do not matter. When the database's clock is set back, nothing runs a second time: what
// was done later than now counts as done. A clock that was far ahead for a while has left markers
// that keep the work from running until then, see [Once.Forget].
//
// There is one marker for each key and d, whatever the number of windows. Once(k), Once(k).Per(d)
// and Once(k).Per(e) are different work. d must be at least a second, and whole microseconds.
func (o *Once[Tx]) Per(d time.Duration) *Once[Tx] {
	err := o.mutex.err
	if err == nil && (d < time.Second || d%time.Microsecond != 0) {
		err = fmt.Errorf("Per(%v): the period must be at least %v, and whole microseconds", d, time.Second)
	}
	per := o.mutex.locker.once(o.key.name, max(d, 0), err)
	per.mutex.within, per.mutex.retries = o.mutex.within, o.mutex.retries
	return per
}

// Within returns a copy that waits at most d for another that does the work, and for a connection
// of the pool. d must be positive.
func (o *Once[Tx]) Within(d time.Duration) *Once[Tx] {
	limited := *o
	limited.mutex = o.mutex.Within(d)
	return &limited
}

// Retry returns a copy whose Do, TryDo and Forget run again, up to n times, as [Mutex.Retry] says.
func (o *Once[Tx]) Retry(n int) *Once[Tx] {
	again := *o
	again.mutex = o.mutex.Retry(n)
	return &again
}

// Do runs work unless it was done before. Work, the lock and the marker are one transaction: ran is
// true when that is committed. It is false without an error when the work was done before, which
// costs one round trip, and no lock. Who comes while the work runs waits for it: then it was done,
// or has failed, and the next one runs it.
//
// After an error ran is false, and there is no marker: work has returned an error, or the session
// was lost, see [Mutex.Do], or work has sent COMMIT itself, which keeps what it did until then. The
// marker is written behind work, with the rights and settings that work leaves. A panic of work
// leaves none either, and goes on. When the connection breaks during COMMIT, nobody can say whether
// both are committed or none; call again to learn it.
//
// In the work of a Do, both are part of that Do's transaction, and are committed with it. In a
// session that a Lock began it is [ErrInsideLock].
func (o *Once[Tx]) Do(ctx context.Context, work func(ctx context.Context, tx Tx) error) (ran bool, err error) {
	return o.do(ctx, "Once.Do", false, work)
}

// TryDo is Do without waiting: while another does the work, it is [ErrNotAcquired].
func (o *Once[Tx]) TryDo(ctx context.Context, work func(ctx context.Context, tx Tx) error) (ran bool, err error) {
	return o.do(ctx, "Once.TryDo", true, work)
}

func (o *Once[Tx]) do(ctx context.Context, verb string, try bool, work func(context.Context, Tx) error) (ran bool,
	err error,
) {
	m := o.mutex
	if work == nil {
		return false, m.wrap(verb, errors.New("nil work"))
	}
	outer, _ := m.locker.carried(ctx)
	marked := func(ctx context.Context, tx Tx) error {
		// A session that was begun for this has looked behind the lock, and writes the marker with
		// its COMMIT. In another, the marker belongs into the savepoint of the work: both are kept,
		// or none. It comes behind the work, whose COMMIT would keep it whatever the work returns.
		s, _ := m.locker.carried(ctx)
		marker, key := *o.key.marker, running(o.key.marker.Hash)
		if s == outer {
			if ctx.Value(key) == any(s) { // the work of the same key has called
				return nil
			}
			err := o.record(ctx, &marker)
			if errors.Is(err, dialects.ErrDone) {
				return nil
			}
			if err != nil {
				return err
			}
		}
		ran = true
		err := work(context.WithValue(ctx, key, s), tx)
		if err != nil || s != outer {
			return err
		}
		marker.Verb = dialects.WriteMarker
		return o.record(ctx, &marker)
	}
	err = m.retry(ctx, func(m *Mutex[Tx]) error {
		ran = false
		return m.attemptDo(ctx, verb, try, marked)
	})
	return ran && err == nil, err
}

// running is the key of a context of work: of its session, while the Once of that hash runs there.
type running [32]byte

// record does in the session that ctx carries what marker says.
func (o *Once[Tx]) record(ctx context.Context, marker *dialects.Marker) error {
	s, of := o.mutex.locker.carried(ctx)
	turn, err := s.turns.Take(ctx, of.Scope()) // a goroutine that the work has left behind may have it
	if err != nil {
		return err
	}
	defer turn.Give()
	request, err := o.key.request(ctx, true)
	if err == nil {
		request.Marker = marker
		err = s.record(ctx, request)
	}
	return err
}

// as returns the mutex of the key, whose lock comes with that marker; nil: alone.
func (o *Once[Tx]) as(marker *dialects.Marker) *Mutex[Tx] {
	key, m := o.key, *o.mutex
	key.marker, m.target = marker, &key
	return &m
}

// DoTx marks the work in a transaction that the caller began and will end. First is true when it
// was not done before: do it then, in the same transaction. Of several transactions that get true,
// one can commit: DoTx waits for the others to end, as [Mutex.LockTx] does, whose errors and
// conditions it has. A rollback takes the marker away, so the next one is first. A second DoTx in
// the same transaction is false, in the same window of Per.
//
// On MySQL and MariaDB, the key stays locked until the end of the transaction also when first is
// false.
func (o *Once[Tx]) DoTx(ctx context.Context, tx Tx) (first bool, err error) {
	const verb = "Once.DoTx"
	marker := *o.key.marker
	marker.Verb = dialects.WriteMarker
	ctx, trace := o.mutex.startTrace(ctx, verb, false)
	err = o.as(&marker).lockIn(ctx, verb, tx, false)
	first = err == nil
	if errors.Is(err, dialects.ErrDone) {
		err = nil
	}
	trace.answer(err)
	return first, err
}

// Done tells whether the work was done, with Per in the present window, and when, by the database's
// clock. It asks the server each time, in one round trip on a connection of the pool (the first
// call also looks for the lock table), and waits for nobody: work that is under way was not done,
// also that of the caller's own transaction.
func (o *Once[Tx]) Done(ctx context.Context) (at time.Time, done bool, err error) {
	m := o.mutex
	wait, cancel, err := m.limitWait(ctx)
	if err != nil {
		return at, false, m.wrap("Once.Done", err)
	}
	defer cancel()
	request, err := o.key.request(wait, false)
	if err == nil {
		at, err = m.locker.driver.Done(wait, request.Table, *request.Marker)
	}
	if errors.Is(err, dialects.ErrDone) {
		return at, true, nil
	}
	m.target.invalidate(err)
	return at, false, m.wrap("Once.Done", m.waitError(ctx, wait, err))
}

// Forget deletes the marker, if there is one, so that the next Do runs. It waits for work that is
// under way. In the work of a Do, it is part of that Do's transaction. In the work of this very
// Once it is an error: the marker comes behind that work. It is [ErrInsideLock] where Do is.
func (o *Once[Tx]) Forget(ctx context.Context) error {
	return o.as(nil).do(ctx, "Once.Forget", false, func(ctx context.Context, _ Tx) error {
		marker := *o.key.marker
		if s, _ := o.mutex.locker.carried(ctx); ctx.Value(running(marker.Hash)) == any(s) {
			return errors.New("the work of this Once is under way: return an error from it, and there is no marker")
		}
		marker.Verb = dialects.ForgetMarker
		return o.record(ctx, &marker)
	})
}

// Sweep deletes the markers of work that was done longer ago than age, by the database's clock, and
// the rows of claims that ended longer ago, or were released. It returns how many. What the markers
// marked is not done any more. So age must be longer than duplicates may take to come, and than
// every period of [Once.Per]. With an age of 0 all markers go that are there. Negative ages are
// errors.
//
// It works in small transactions, one after the other: nobody waits for it for long, and it waits
// for nobody. Many replicas may sweep at once. After an error, the deleted ones are deleted.
func (l *Locker[Tx]) Sweep(ctx context.Context, age time.Duration) (deleted int64, err error) {
	err = l.ready()
	if err == nil && age < 0 {
		err = fmt.Errorf("the age is negative: %v", age)
	}
	var found *dialects.LockTable
	if err == nil {
		found, err = l.find(ctx, false)
	}
	if err == nil {
		deleted, err = l.driver.Sweep(ctx, found.Name, age)
	}
	l.invalidate(err)
	return deleted, wrap("sweep", err)
}
