package txlock

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/txlock/txlock/dialects"
)

// Claimed is a claim that was taken. It may have ended since; every call asks the database. Many
// goroutines may use it.
type Claimed[Tx any] struct {
	claim         *Claim[Tx]
	by            string
	token, secret int64
	until         *atomic.Int64 // in microseconds
}

func atomicTime(t time.Time) *atomic.Int64 {
	var micros atomic.Int64
	micros.Store(t.UnixMicro())
	return &micros
}

// claimText begins the text of a claim.
const claimText = "claim1"

// String is the claim as a text of letters, digits, "-", "_" and ".", for a cookie, a job's payload
// or another process: [Locker.Claimed] reads it. It has a random number of 63 bits, drawn with the
// claim. Errors, Inspect and logs of txlock do not show it, so nobody makes the text of another's
// claim from them: an even chance takes 2⁶² guesses, each of which asks the database. Who may read
// the table of claims, or the statements of all sessions, can. Whoever has the text can use the
// claim: give it to nobody who may not.
func (h *Claimed[Tx]) String() string {
	encode := base64.RawURLEncoding.EncodeToString
	return strings.Join([]string{
		claimText, strconv.FormatInt(h.token, 10), strconv.FormatInt(h.until.Load(), 10), encode([]byte(h.claim.key)),
		encode([]byte(h.by)), strconv.FormatInt(h.secret, 10),
	}, ".")
}

// Claimed reads the text of [Claimed.String]. It checks the form and sends nothing. Holder, token
// and secret are compared with the claim's by the database, in each call: until one has succeeded,
// Key, By and Token are what somebody says. A text that was changed, or is of another lock table,
// is [ErrLost], as a claim that is over.
func (l *Locker[Tx]) Claimed(text string) (*Claimed[Tx], error) {
	fields := strings.Split(text, ".")
	if len(fields) != 6 || fields[0] != claimText {
		return nil, errClaimText
	}
	token, badToken := strconv.ParseInt(fields[1], 10, 64)
	until, badUntil := strconv.ParseInt(fields[2], 10, 64)
	key, badKey := base64.RawURLEncoding.DecodeString(fields[3])
	by, badBy := base64.RawURLEncoding.DecodeString(fields[4])
	secret, badSecret := strconv.ParseInt(fields[5], 10, 64)
	if err := cmp.Or(badToken, badUntil, badKey, badBy, badSecret); err != nil || token < 1 || !mayHold(string(by)) {
		return nil, errClaimText
	}
	c := l.Claim(string(key))
	if c.err != nil {
		return nil, errClaimText
	}
	return &Claimed[Tx]{c, string(by), token, secret, atomicTime(time.UnixMicro(until))}, nil
}

var errClaimText = errors.New("txlock: the text is no claim: it is not what String of a Claimed returns")

// Key is the key of the claim.
func (h *Claimed[Tx]) Key() string { return h.claim.key }

// By is who has taken the claim.
func (h *Claimed[Tx]) By() string { return h.by }

// Token increases with every claim that is taken, and every lock with a token, of the same lock
// table: see [Lock.Token]. Extending a claim does not change it.
func (h *Claimed[Tx]) Token() int64 { return h.token }

// Until is when the claim ends, by the database's clock, as far as this value has heard: another
// process may have extended or released it.
func (h *Claimed[Tx]) Until() time.Time { return time.UnixMicro(h.until.Load()) }

// Do is [Mutex.Do] of the claim's key. It commits only if the claim is still this holder's: that
// and the end are compared behind the grant of the lock, and whoever wants to take the claim
// waits for that lock. So a claim that runs out in the middle of work does no harm. One that was
// over before is [ErrLost], and work does not run.
//
// In the work of another Do it is part of that Do's transaction, in a savepoint. Several claims in
// one transaction: Do of one in the work of the other, in the same order everywhere.
func (h *Claimed[Tx]) Do(ctx context.Context, work func(ctx context.Context, tx Tx) error) error {
	const verb = "Claimed.Do"
	if work == nil {
		return h.claim.wrap(verb, errors.New("nil work"))
	}
	_, err := h.claim.change(ctx, verb, h.to(dialects.KeepClaim), work)
	return err
}

// LockTx does in the caller's transaction what Do does: when it returns nil, the claim is this
// holder's until that transaction ends. It is [ErrLost] when the claim is over, and then the
// transaction is usable. Otherwise it is as [Mutex.LockTx].
func (h *Claimed[Tx]) LockTx(ctx context.Context, tx Tx) error {
	const verb = "Claimed.LockTx"
	m := h.claim.mutex(h.to(dialects.KeepClaim))
	ctx, trace := m.startTrace(ctx, verb, false)
	err := endedIsLost(m.lockIn(ctx, verb, tx, false))
	trace.answer(err)
	return err
}

// Extend moves the end to d from now, by the database's clock, and returns it. A claim that is over
// is [ErrLost], also when nobody has taken it since. It waits for a Do of the claim that is under
// way; in the work of that Do, call it with the work's ctx. d is at least a second, and at most 366
// days.
func (h *Claimed[Tx]) Extend(ctx context.Context, d time.Duration) (until time.Time, err error) {
	const verb = "Claimed.Extend"
	if err := checkFor(d); err != nil {
		return until, h.claim.wrap(verb, err)
	}
	change := h.to(dialects.ExtendClaim)
	change.For = d
	state, err := h.claim.change(ctx, verb, change, nil)
	if err != nil {
		return until, err
	}
	if !h.claim.locker.carriesOpen(ctx) { // else it depends on the outer COMMIT
		h.until.Store(state.Until.UnixMicro())
	}
	return state.Until, nil
}

// Release gives the claim back. It waits for a Do of the claim that is under way. With a ctx that
// has ended it does the same, for 5 s at most. A claim that was released before is no error, until
// Sweep has deleted its row. One that was over, or taken by another, is [ErrLost]. Who waits in
// this process learns of it at once, in others within a second.
func (h *Claimed[Tx]) Release(ctx context.Context) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
	}
	state, err := h.claim.change(ctx, "Claimed.Release", h.to(dialects.ReleaseClaim), nil)
	if err == nil && !h.claim.locker.carriesOpen(ctx) {
		h.until.Store(state.Until.UnixMicro())
		h.claim.locker.lookout.Wake(claimOf(h.Key()))
	}
	return err
}

func (h *Claimed[Tx]) to(verb dialects.ClaimVerb) dialects.ClaimChange {
	return dialects.ClaimChange{Verb: verb, Hash: claimOf(h.Key()), By: h.by, Token: h.token, Secret: h.secret}
}
