package txlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
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
// another process: [Locker.Claimed] reads it, and whoever has it can use the claim. It has a random
// number of 63 bits, which readers of the table of claims, or of all sessions' statements, see.
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

// Token increases with each claim of the key, not with Extend: see [Lock.Token].
func (h *Claimed[Tx]) Token() int64 { return h.token }

// Until is when the claim ends, by the database's clock, as far as this value has heard: another
// process may have extended or released it.
func (h *Claimed[Tx]) Until() time.Time { return time.UnixMicro(h.until.Load()) }

// Do is [Mutex.Do] of the claim. That it is still this holder's is read behind the grant of the
// lock, and nobody takes what is locked: a claim that runs out in the middle of work does no harm.
// One that was over before is [ErrClaimEnded], and work does not run.
func (h *Claimed[Tx]) Do(ctx context.Context, work func(ctx context.Context, tx Tx) error) error {
	const verb = "Claimed.Do"
	_, err := h.under(verb, h.keep, func(m *Mutex[Tx]) error { return m.do(ctx, verb, false, work) })
	return err
}

// LockTx does in the caller's transaction what Do does: when it returns nil, the claim is this
// holder's until that transaction ends. Of a claim that is over it is [ErrClaimEnded], and leaves
// the transaction usable, else as [Mutex.LockTx].
func (h *Claimed[Tx]) LockTx(ctx context.Context, tx Tx) error {
	const verb = "Claimed.LockTx"
	_, err := h.under(verb, h.keep, func(m *Mutex[Tx]) error { return m.lockTx(ctx, verb, tx, false) })
	return err
}

// under has call lock the row. Behind that a query compares the claim with it, and has its end.
func (h *Claimed[Tx]) under(verb string, query func(dialects.Kinds) dialects.Query, call func(*Mutex[Tx]) error) (
	end string, err error,
) {
	locked := false
	m := h.made().made().asking(query, func(answer []string) error {
		if locked = true; len(answer) == 0 {
			return h.claim.mutex.wrap(verb, ErrClaimEnded)
		}
		end = answer[0]
		return nil
	})
	if err = call(m); !locked && errors.Is(err, ErrNoRow) { // it was swept
		err = m.wrap(verb, ErrClaimEnded)
	}
	return end, err
}

func (h *Claimed[Tx]) args(further ...any) []any {
	return append([]any{[]byte(h.claim.hash), h.by, h.token, h.secret}, further...)
}

func (h *Claimed[Tx]) keep(k dialects.Kinds) dialects.Query { return k.Claims.Keep.With(h.args()...) }

// Extend moves the end to d from now, by the database's clock, and returns it. A claim that is over
// is [ErrClaimEnded], also when nobody has taken it since. It waits for a Do of the claim that is
// under way; in the work of that Do, call it with the work's ctx.
func (h *Claimed[Tx]) Extend(ctx context.Context, d time.Duration) (until time.Time, err error) {
	const verb = "Claimed.Extend"
	if err = checkClaim(h.by, d); err != nil {
		return until, h.made().made().wrap(verb, err)
	}
	return h.move(ctx, verb, d)
}

// Release gives the claim back. It waits for a Do of the claim that is under way, with a ctx that
// has ended for 5 s at most. One that was over, or released before, is [ErrClaimEnded]. Who waits
// here learns of it at once.
func (h *Claimed[Tx]) Release(ctx context.Context) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), dialects.ReleaseTimeout)
		defer cancel()
	}
	_, err := h.move(ctx, "Claimed.Release", 0)
	h.claim.mutex.locker.free(h.claim.hash)
	return err
}

// move moves the end to d from now, with 0 into the past.
func (h *Claimed[Tx]) move(ctx context.Context, verb string, d time.Duration) (until time.Time, err error) {
	end, err := h.under(verb, func(k dialects.Kinds) dialects.Query {
		return k.Claims.Move.With(h.args(d.Microseconds())...)
	}, func(m *Mutex[Tx]) error {
		return m.do(ctx, verb, false, func(context.Context, Tx) error { return nil })
	})
	if err != nil {
		return until, err
	}
	micros, err := strconv.ParseInt(end, 10, 64)
	if !h.claim.mutex.locker.carriesOpen(ctx) { // else the caller's Do may undo it
		h.until.Store(micros)
	}
	return time.UnixMicro(micros), err
}
