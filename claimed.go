package txlock

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/txlock/txlock/dialects"
)

// Claimed is a claim that was taken. It may have ended since; every call asks the database. Many
// goroutines may use it.
type Claimed[Tx any] struct {
	claim         *Claim[Tx]
	by            string
	token, secret int64        // no secret: it is for Break, which has seen the row
	until         atomic.Int64 // in microseconds
}

func (h *Claimed[Tx]) made() *Claim[Tx] { return made(h.claim, "Claimed: Claim.Take") }

// claimText has the token, the end, the key and the holder, and the secret.
const claimText = "claim1.%d.%d.%x.%x.%d"

// String is the claim as a text of letters, digits and ".", for a cookie, a job's payload or
// another process: [Locker.Claimed] reads it. It has a random number of 63 bits, drawn with the
// claim, which nothing else of txlock shows: who guesses cannot make the text of another's claim.
// Who may read the table of claims, or the statements of all sessions, can. Whoever has the text
// can use the claim: give it to nobody who may not.
func (h *Claimed[Tx]) String() string {
	return fmt.Sprintf(claimText, h.token, h.until.Load(), h.made().key, h.by, h.secret)
}

// Claimed reads the text of [Claimed.String]. It checks the form and sends nothing. Holder, token
// and secret are compared with the row's in each call: until one has succeeded, Key, By and Token
// are what somebody says. A text that was changed, or is of another lock table, is [ErrClaimEnded].
func (l *Locker[Tx]) Claimed(text string) (*Claimed[Tx], error) {
	var key string
	var until int64
	h := &Claimed[Tx]{}
	_, err := fmt.Sscanf(text, claimText, &h.token, &until, &key, &h.by, &h.secret)
	h.claim = l.Claim(key)
	h.until.Store(until)
	if err != nil || h.token < 1 || h.secret < 1 || h.claim.mutex.err != nil || checkClaim(h.by, minClaim) != nil ||
		h.String() != text {
		return nil, errors.New("txlock: the text is no claim: it is not what String of a Claimed returns")
	}
	return h, nil
}

// Key is the key of the claim.
func (h *Claimed[Tx]) Key() string { return h.made().key }

// By is who has taken the claim.
func (h *Claimed[Tx]) By() string { return h.by }

// Token increases with every claim of this key that is taken: see [Lock.Token]. Extending a claim
// does not change it. Tokens of other keys, and of locks, count on their own.
func (h *Claimed[Tx]) Token() int64 { return h.token }

// Until is when the claim ends, by the database's clock, as far as this value has heard: another
// process may have extended or released it.
func (h *Claimed[Tx]) Until() time.Time { return time.UnixMicro(h.until.Load()) }

// Do is [Mutex.Do] of the claim. It commits only if the claim is still this holder's: that and the
// end are read behind the grant of the lock, and nobody takes what is locked. So a claim that runs
// out in the middle of work does no harm. One that was over before is [ErrClaimEnded], and work
// does not run. In the work of another Do it is part of that Do's transaction, in a savepoint.
func (h *Claimed[Tx]) Do(ctx context.Context, work func(ctx context.Context, tx Tx) error) error {
	_, err := h.under(ctx, "Claimed.Do", work, nil)
	return err
}

// under does work under the claim, and then moves its end to what end says, unless that is nil.
func (h *Claimed[Tx]) under(ctx context.Context, verb string, work func(context.Context, Tx) error,
	end func(now time.Time) time.Time,
) (until time.Time, err error) {
	m := *h.made().made()
	if err = m.ready(); err != nil {
		return until, m.wrap(verb, err)
	}
	joins := m.locker.carriesOpen(ctx)
	found, err := m.locker.find(ctx, joins)
	if err != nil {
		return until, m.wrap(verb, err)
	}
	sql, locked, row := found.Kinds.Claims, false, claimRow{}
	m.attached = &attached{look: h.claim.query(sql, sql.Keep), judge: func(answer []string) (err error) {
		locked = true
		row, err = h.judge(answer, nil)
		return m.wrap(verb, err)
	}}
	if end != nil {
		m.attached.last = func() []dialects.Query {
			until = end(row.Until.Add(-row.left))
			return []dialects.Query{h.claim.query(sql, sql.End, until.UnixMicro())}
		}
	}
	err = m.do(ctx, verb, false, work)
	switch {
	case !locked:
		err = goneIsEnded(err)
	case err == nil && end != nil && !joins:
		h.until.Store(until.UnixMicro())
		m.locker.lookout.Wake()
	}
	return until, err
}

func noWork[Tx any](context.Context, Tx) error { return nil }

// released is the end of a claim that was given back.
func released(time.Time) time.Time { return time.UnixMicro(0) }

// LockTx does in the caller's transaction what Do does: when it returns nil, the claim is this
// holder's until that transaction ends. It is [ErrClaimEnded] when the claim is over, and then the
// transaction is usable. Otherwise it is as [Mutex.LockTx].
func (h *Claimed[Tx]) LockTx(ctx context.Context, tx Tx) error {
	const verb = "Claimed.LockTx"
	m := h.made().made()
	ctx, trace := m.startTrace(ctx, verb, false)
	err := goneIsEnded(m.lockIn(ctx, verb, tx, false))
	var found *dialects.LockTable
	if err == nil {
		found, err = m.locker.find(ctx, true)
	}
	if err == nil {
		keep := h.claim.query(found.Kinds.Claims, found.Kinds.Claims.Keep)
		_, err = h.judge(m.locker.driver.Run(ctx, keep, tx))
		err = m.wrap(verb, err)
	}
	trace.answer(err)
	return err
}

// judge reads the row behind its lock. It is an error unless the claim is this holder's.
func (h *Claimed[Tx]) judge(answer []string, err error) (claimRow, error) {
	row, err := rowOf(answer, err)
	known := h.secret == row.secret || h.secret == 0
	if err == nil && (row.By != h.by || row.Token != h.token || !known || row.left <= 0) {
		err = fmt.Errorf("%w: its time is over, it was released, or another has taken it since", ErrClaimEnded)
	}
	return row, err
}

// goneIsEnded is an error of a lock, where that of a row that is gone is [ErrClaimEnded].
func goneIsEnded(err error) error {
	if errors.Is(err, ErrNoRow) {
		err = fmt.Errorf("%w: it is gone: %v", ErrClaimEnded, err)
	}
	return err
}

// Extend moves the end to d from now, by the database's clock, and returns it. A claim that is over
// is [ErrClaimEnded], also when nobody has taken it since. It waits for a Do of the claim that is
// under way; in the work of that Do, call it with the work's ctx. d is as that of TryTake.
func (h *Claimed[Tx]) Extend(ctx context.Context, d time.Duration) (until time.Time, err error) {
	const verb = "Claimed.Extend"
	if err = checkClaim(h.by, d); err != nil {
		return until, h.made().made().wrap(verb, err)
	}
	return h.under(ctx, verb, noWork[Tx], func(now time.Time) time.Time { return now.Add(d) })
}

// Release gives the claim back. It waits for a Do of the claim that is under way, with a ctx that
// has ended for 5 s at most. One that was over, or released before, is [ErrClaimEnded]. Who waits
// here learns of it at once, in other processes, and in the work of a Do, within a second.
func (h *Claimed[Tx]) Release(ctx context.Context) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), dialects.ReleaseTimeout)
		defer cancel()
	}
	_, err := h.under(ctx, "Claimed.Release", noWork[Tx], released)
	return err
}
