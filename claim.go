package txlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// Claim is something that one holder at a time has for a while, without a connection: a seat in a
// checkout, an article that somebody edits, a step of a workflow. A row in the database says who
// has it, and until when, by the database's clock; the clocks of clients are never asked. It holds
// no state: many goroutines may use one value.
//
// What a holder does in [Claimed.Do], or behind [Claimed.LockTx], is proved: it is committed only
// if the claim was still held when its lock was granted, and nobody else can have the claim before
// that transaction ends. Outside the database a claim is a lease: the holder may be late and not
// know it. Send [Claimed.Token] with what is written elsewhere, and have a smaller one refused.
type Claim[Tx any] struct {
	locker *Locker[Tx]
	key    string
	within time.Duration // 0: without a limit
	err    error
}

// Claim names something to be had for a while. A key is any bytes, from 1 to 255 of them; others
// are an error from the first call. Claim sends nothing.
func (l *Locker[Tx]) Claim(key string) *Claim[Tx] {
	c := &Claim[Tx]{locker: l, key: key}
	if key == "" || len(key) > maxClaimText {
		c.err = fmt.Errorf("the key has %d bytes, and must have 1 to %d", len(key), maxClaimText)
	}
	return c
}

const (
	maxClaimText = 255
	minClaim     = time.Second
	maxClaim     = 366 * 24 * time.Hour
)

// Within returns a copy whose Take waits at most d. d must be positive.
func (c *Claim[Tx]) Within(d time.Duration) *Claim[Tx] {
	limited := *c
	limited.within = d
	if d <= 0 && limited.err == nil {
		limited.err = fmt.Errorf("Within(%v): the limit must be positive", d)
	}
	return &limited
}

// HeldError says who has a claim that was not to be had. It comes with [ErrNotAcquired].
type HeldError struct {
	By    string
	Until time.Time // by the database's clock; over while its holder is in a Do

	left time.Duration
}

// Error says who has the claim, and until when.
func (e *HeldError) Error() string {
	text := "%q has it until %s"
	if e.left <= 0 {
		text = "%q had it until %s, and a call for it is under way"
	}
	return fmt.Sprintf(text, e.By, e.Until.UTC().Format(time.RFC3339Nano))
}

// ClaimState is who has a claim. It is zero when nobody has it. The times are the database's.
type ClaimState struct {
	By           string
	Token        int64
	Since, Until time.Time
}

// State reads who has the claim now, in one round trip on a connection of the pool (the first call
// also looks for the lock table). It waits for nobody.
func (c *Claim[Tx]) State(ctx context.Context) (ClaimState, error) {
	state, err := c.read(ctx)
	if err != nil || state.Left <= 0 {
		return ClaimState{}, c.wrap("Claim.State", err)
	}
	return ClaimState{By: state.By, Token: state.Token, Since: state.Since, Until: state.Until}, nil
}

func (c *Claim[Tx]) read(ctx context.Context) (dialects.ClaimState, error) {
	m := c.mutex(dialects.ClaimChange{})
	wait, cancel, err := m.limitWait(ctx)
	if err != nil {
		return dialects.ClaimState{}, err
	}
	defer cancel()
	hash := claimOf(c.key)
	states, err := c.locker.readClaims(wait, hash)
	return states[hash], m.waitError(ctx, wait, err)
}

// TryTake takes the claim for d, unless another has it: then it is [ErrNotAcquired], and errors.As
// finds a [HeldError]. While another call is changing the claim, that has who had it last.
//
// By says who takes it, in 1 to 255 bytes of UTF-8 without NUL. Where the same By has it already,
// only its end is moved, to d from now: it keeps its token. d is at least a second, and at most 366
// days. After an [ErrLost] of which it is unknown whether it was committed, take it again by the
// same By.
//
// In the work of a Do it is part of that Do's transaction, and also when it misses, nobody else can
// change the claim until that ends. In a session that a Lock began it is [ErrInsideLock].
func (c *Claim[Tx]) TryTake(ctx context.Context, by string, d time.Duration) (*Claimed[Tx], error) {
	const verb = "Claim.TryTake"
	return c.taking(ctx, verb, by, d, func(ctx context.Context, change dialects.ClaimChange) (*Claimed[Tx], error) {
		held, _, err := c.tryTake(ctx, verb, change)
		return held, err
	})
}

// taking is one call that takes the claim, by one try or by several.
func (c *Claim[Tx]) taking(ctx context.Context, verb, by string, d time.Duration,
	take func(context.Context, dialects.ClaimChange) (*Claimed[Tx], error),
) (held *Claimed[Tx], err error) {
	err = checkFor(d)
	if !mayHold(by) {
		err = fmt.Errorf("by %.300q: it must be 1 to %d bytes of UTF-8 without NUL", by, maxClaimText)
	}
	if err != nil {
		return nil, c.wrap(verb, err)
	}
	change := dialects.ClaimChange{Verb: dialects.TakeClaim, Hash: claimOf(c.key), By: by, For: d, Secret: newSecret()}
	if !c.locker.config.hidden {
		change.Name = label.ASCII(c.key)
	}
	ctx, trace := c.mutex(change).startTrace(ctx, verb, true)
	err = traced(trace, nil, func(func(context.Context, Tx) error) error {
		held, err = take(ctx, change)
		return err
	})
	return held, err
}

// tryTake tries once. State is who has the claim instead, as far as that is known.
func (c *Claim[Tx]) tryTake(ctx context.Context, verb string, change dialects.ClaimChange) (
	held *Claimed[Tx], state dialects.ClaimState, err error,
) {
	state, err = c.attempt(ctx, verb, true, change, nil)
	if err == nil {
		claim := &Claim[Tx]{locker: c.locker, key: c.key} // Within is for Take alone
		return &Claimed[Tx]{claim, state.By, state.Token, state.Secret, atomicTime(state.Until)}, state, nil
	}
	if ended := ctx.Err(); ended != nil && errors.Is(err, ended) && !errors.Is(err, ErrLost) &&
		!errors.Is(err, ErrNotAcquired) { // before the commit
		err = fmt.Errorf("%w: %w", ErrNotAcquired, err)
	}
	if !errors.Is(err, ErrNotAcquired) || state.By != "" || ctx.Err() != nil || c.locker.carriesOpen(ctx) {
		return nil, state, err
	}
	// Somebody has its lock. Who it may be stands in the row.
	state, failed := c.read(ctx)
	switch {
	case failed != nil || state.By == "" || state.Until.Equal(dialects.Released):
	case state.By == change.By:
		err = fmt.Errorf("%w: another call for %q is under way", err, state.By)
	default:
		err = fmt.Errorf("%w: %w", err, heldBy(state))
	}
	return nil, state, err
}

// mayHold tells whether by may have a claim.
func mayHold(by string) bool {
	return by != "" && len(by) <= maxClaimText && utf8.ValidString(by) && !strings.ContainsRune(by, 0)
}

func newSecret() int64 {
	var random [8]byte
	_, _ = rand.Read(random[:]) // which does not fail
	return int64(binary.BigEndian.Uint64(random[:]) >> 1)
}

func heldBy(state dialects.ClaimState) *HeldError {
	return &HeldError{By: state.By, Until: state.Until, left: state.Left}
}

func checkFor(d time.Duration) error {
	if d < minClaim || d > maxClaim {
		return fmt.Errorf("for %v: a claim is held for at least %v, and at most %v", d, minClaim, maxClaim)
	}
	return nil
}

// change is attempt, as a Tracer sees it.
func (c *Claim[Tx]) change(ctx context.Context, verb string, change dialects.ClaimChange,
	work func(context.Context, Tx) error,
) (state dialects.ClaimState, err error) {
	ctx, trace := c.mutex(change).startTrace(ctx, verb, true)
	err = traced(trace, work, func(work func(context.Context, Tx) error) error {
		state, err = c.attempt(ctx, verb, false, change, work)
		return err
	})
	return state, err
}

// attempt changes the claim under its lock. To keep it, work runs in the same transaction.
func (c *Claim[Tx]) attempt(ctx context.Context, verb string, try bool, change dialects.ClaimChange,
	work func(context.Context, Tx) error,
) (state dialects.ClaimState, err error) {
	m := c.mutex(change)
	g, err := m.acquire(ctx, ctx, try, true)
	if err != nil {
		return state, endedIsLost(m.wrap(verb, err))
	}
	err = m.perform(ctx, verb, g, func(ctx context.Context, tx Tx) error {
		var err error
		if state = g.Claim; g.turn != nil { // the session was there before
			var request dialects.Request
			if request, err = m.target.request(ctx, true); err == nil {
				request.Claim = request.Claim.Drawn(g.Token)
				state, err = g.record(ctx, request)
			}
		}
		if err != nil || change.Verb != dialects.KeepClaim {
			return m.wrap(verb, err)
		}
		return work(ctx, tx)
	})
	if err == nil && change.Verb == dialects.TakeClaim && state.By != change.By { // and nothing was written
		err = m.wrap(verb, fmt.Errorf("%w: %w", ErrNotAcquired, heldBy(state)))
	}
	return state, endedIsLost(err)
}

// endedIsLost has the end of a claim match ErrLost, behind all that takes that for the loss of a
// session.
func endedIsLost(err error) error {
	if errors.Is(err, dialects.ErrClaimEnded) {
		return asLost(err)
	}
	return err
}

func (c *Claim[Tx]) wrap(verb string, err error) error {
	return c.mutex(dialects.ClaimChange{}).wrap(verb, err)
}

func (c *Claim[Tx]) mutex(change dialects.ClaimChange) *Mutex[Tx] {
	return &Mutex[Tx]{
		locker: c.locker, within: c.within, err: c.err,
		target: &recorded[Tx]{slots: slots[Tx]{c.locker, []string{"claim:" + c.key}}, name: c.key, claim: &change},
	}
}

// claimColumn stands where locks of rows have the name of a column.
const claimColumn = "claim"

// heldClaims are those of all claims, or of these keys, that are held. An installation from before
// there were claims has none, and its users may read none.
func (l *Locker[Tx]) heldClaims(ctx context.Context, table string, keys []string) (holdings []Holding, err error) {
	named := map[[32]byte]string{}
	for _, key := range keys {
		named[claimOf(key)] = key
	}
	states, err := l.driver.Claims(ctx, table, slices.Collect(maps.Keys(named))...)
	if errors.Is(err, ErrNotInstalled) || errors.Is(err, dialects.ErrUnreadable) {
		return nil, nil
	}
	for claim, state := range states {
		if state.Left <= 0 {
			continue
		}
		hash := hex.EncodeToString(claim[:])
		key := cmp.Or(named[claim], label.Known(dialects.Named{Hash: hash, Name: state.Name}))
		holdings = append(holdings, Holding{
			Table: l.config.table, Column: claimColumn, Row: hash, Key: key, Behind: l.lookout.Count(claim),
			Holder: &Session{
				Key: key, By: state.By, Since: state.Since, For: state.Until.Add(-state.Left).Sub(state.Since),
				Until: state.Until, token: state.Token, secret: &state.Secret,
			},
		})
	}
	return holdings, err
}

func (l *Locker[Tx]) breakClaim(ctx context.Context, h Holding) error {
	claim := claimOf(h.Key)
	if h.Row != hex.EncodeToString(claim[:]) {
		return errors.New("the table does not show the key of this claim: inspect it by its key, and break that")
	}
	secret := *cmp.Or(h.Holder.secret, new(int64)) // nil in a Holding that nobody has inspected
	held := Claimed[Tx]{l.Claim(h.Key), h.Holder.By, h.Holder.token, secret, nil}
	_, err := held.claim.change(Apart(ctx), "Claim.Break", held.to(dialects.BreakClaim), nil)
	switch {
	case errors.Is(err, dialects.ErrClaimEnded):
		return fmt.Errorf("%w: %q does not have it any more", ErrNotHeld, h.Holder.By)
	case err == nil:
		l.lookout.Wake(claim)
		l.config.logger.WarnContext(ctx, "txlock: ended a claim", "lock", h.name(), "by", h.Holder.By)
	}
	return err
}

// claimOf hashes the key of a claim. The hash is part of what all clients agree on.
func claimOf(key string) [32]byte { return sha256.Sum256([]byte("txlock claim 1\x00" + key)) }
