package txlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
	"github.com/txlock/txlock/internal/lookout"
)

// Claim is something that one holder at a time has for a while, without a connection: a seat in a
// checkout, an article that somebody edits, a step of a workflow. A row in the database says who
// has it, and until when, by the database's clock. It holds no state: many goroutines may use one.
type Claim[Tx any] struct {
	mutex *Mutex[Tx] // of its row
	key   string
	hash  [32]byte
}

func (c *Claim[Tx]) made() *Mutex[Tx] { return made(c.mutex, "Claim: Locker.Claim") }

const (
	maxClaimText = 255
	minClaim     = time.Second
	maxClaim     = 366 * 24 * time.Hour
	claimColumn  = "claim" // where locks of rows have the name of a column
)

// Claim names something to be had for a while. A key is any bytes, from 1 to 255 of them; others
// are an error from the first call. Claim sends nothing.
func (l *Locker[Tx]) Claim(key string) *Claim[Tx] {
	// The hash is part of what all clients agree on.
	c := &Claim[Tx]{key: key, hash: sha256.Sum256([]byte("txlock claim 1\x00" + key))}
	row := l.claims(key, c.hash[:])
	c.mutex = &Mutex[Tx]{locker: l, target: row}
	if key == "" || len(key) > maxClaimText {
		c.mutex.err = fmt.Errorf("the key has %d bytes, and must have 1 to %d", len(key), maxClaimText)
	}
	return c
}

// Within returns a copy whose calls take at most d, the wait for a connection of the pool and that
// of Take included. d must be positive.
func (c *Claim[Tx]) Within(d time.Duration) *Claim[Tx] {
	return &Claim[Tx]{c.made().Within(d), c.key, c.hash}
}

// ClaimState is who has a claim. It is zero when nobody has it. The times are the database's.
type ClaimState struct {
	By           string
	Token        int64
	Since, Until time.Time
}

// State reads who has the claim now, in one round trip on a connection of the pool (the first call
// also looks for the lock table). It waits for nobody.
func (c *Claim[Tx]) State(ctx context.Context) (state ClaimState, err error) {
	row, err := c.within(ctx, "Claim.State", func(ctx context.Context) (claimRow, error) {
		return c.ask(ctx, func(sql dialects.ClaimSQL) string { return sql.Read })
	})
	if row.left > 0 {
		state = row.ClaimState
	}
	return state, err
}

// within makes a call, which Within bounds.
func (c *Claim[Tx]) within(ctx context.Context, verb string, call func(context.Context) (claimRow, error)) (
	row claimRow, err error,
) {
	wait, cancel, err := c.made().limitWait(ctx)
	if err == nil {
		defer cancel()
		row, err = call(wait)
		err = c.mutex.waitError(wait, err)
	}
	return row, c.mutex.wrap(verb, err)
}

// ask runs a statement about the claim by itself.
func (c *Claim[Tx]) ask(ctx context.Context, text func(dialects.ClaimSQL) string, args ...any) (claimRow, error) {
	found, err := c.mutex.locker.find(ctx, false)
	if err != nil {
		return claimRow{}, err
	}
	return rowOf(c.mutex.locker.ask(ctx, c.query(found.Kinds.Claims, text(found.Kinds.Claims), args...)))
}

func (c *Claim[Tx]) query(sql dialects.ClaimSQL, text string, args ...any) dialects.Query {
	return dialects.Query{
		SQL: text, Args: append([]any{c.hash[:]}, args...), Table: sql.Table, Reads: text == sql.Read,
	}
}

// claimRow is what the row of a claim says. It is zero where there is none.
type claimRow struct {
	ClaimState
	done   int // positive: the statement has done what it is for
	secret int64
	left   time.Duration // by the server's clock; not positive: nobody has it
	hash   []byte
	name   string // the key, for people; empty: it is hidden
}

// rowOf reads a line of dialects.ClaimSQL.
func rowOf(lines []string, err error) (r claimRow, _ error) {
	if err != nil || len(lines) == 0 {
		return r, err
	}
	var since, until, left int64
	// What comes last may be empty.
	_, _ = fmt.Sscanf(lines[0], "%d %d %d %d %d %d %x %x %x", &r.done, &r.Token, &r.secret, &since, &until, &left,
		&r.hash, &r.By, &r.name)
	r.Since, r.Until, r.left = time.UnixMicro(since), time.UnixMicro(until), time.Duration(left)*time.Microsecond
	return r, nil
}

// HeldError says who has a claim that was not to be had. It comes with [ErrNotAcquired].
type HeldError struct {
	By    string    // empty: nobody had it a moment ago
	Until time.Time // by the database's clock; over while another call for the claim is under way
}

// Error says who has the claim, and until when.
func (e *HeldError) Error() string {
	if e.By == "" {
		return "nobody had it a moment ago"
	}
	return fmt.Sprintf("%q has it until %s", e.By, e.Until.UTC().Format(time.RFC3339Nano))
}

// TryTake takes the claim for d, unless another has it: then it is [ErrNotAcquired], and errors.As
// finds a [HeldError]. It waits for nobody, also not for a Do of the claim. By says who takes it,
// in 1 to 255 bytes of UTF-8 without NUL; the same By keeps its token, and moves the end to d from
// now. d is at least a second, and at most 366 days. After an error that is no HeldError it may
// have been taken all the same: take it again by the same By. In a session, that of a Do or a Lock,
// it is an error: take the claim before, or with [Apart].
func (c *Claim[Tx]) TryTake(ctx context.Context, by string, d time.Duration) (*Claimed[Tx], error) {
	return c.take(ctx, "Claim.TryTake", by, d, false)
}

// Take is TryTake that waits while another has the claim, until ctx or Within ends that. Who waits
// takes no connection. When the claim is over, or is released, any of them may be next. All that
// wait in a Locker share one look a second, and one at the end of each claim, but never more than
// ten a second, those included that take nothing.
func (c *Claim[Tx]) Take(ctx context.Context, by string, d time.Duration) (*Claimed[Tx], error) {
	return c.take(ctx, "Claim.Take", by, d, true)
}

func (c *Claim[Tx]) take(ctx context.Context, verb, by string, d time.Duration, wait bool) (*Claimed[Tx], error) {
	l, err := c.made().locker, checkClaim(by, d)
	if err == nil && l.carriesOpen(ctx) {
		err = errors.New("a claim is not taken inside a Do or a Lock: take it before, or use txlock.Apart")
	}
	if err != nil {
		return nil, c.mutex.wrap(verb, err)
	}
	ctx, trace := c.mutex.startTrace(ctx, verb, true)
	row, err := c.within(ctx, verb, func(ctx context.Context) (row claimRow, err error) {
		l.lookout.Wait(ctx, lookout.Want{Claim: c.hash, By: by}, func() (left time.Duration, again bool) {
			row, err = c.try(ctx, by, d)
			return row.left, wait && errors.Is(err, ErrNotAcquired)
		})
		return row, err
	})
	trace.answer(err)
	trace.end(err)
	if err != nil {
		return nil, err
	}
	held := &Claimed[Tx]{claim: l.Claim(c.key), by: by, token: row.Token, secret: row.secret} // Within is for this call
	held.until.Store(row.Until.UnixMicro())
	return held, nil
}

// try tries once.
func (c *Claim[Tx]) try(ctx context.Context, by string, d time.Duration) (claimRow, error) {
	random, _ := rand.Int(rand.Reader, big.NewInt(math.MaxInt64)) // which does not fail
	take := func(sql dialects.ClaimSQL) string { return sql.Take }
	name := c.mutex.locker.config.storedName(c.key)
	row, err := c.ask(ctx, take, by, 1+random.Int64(), name, d.Microseconds())
	if err != nil && !errors.Is(err, ErrDeadlock) || row.done > 0 { // a deadlock: another node of a cluster was first
		return row, err
	}
	held, busy := &HeldError{row.By, row.Until}, ""
	if row.left <= 0 || row.By == by {
		busy = "another call for it is under way: "
	}
	return row, fmt.Errorf("%w: %s%w", ErrNotAcquired, busy, held)
}

// checkClaim tells whether by may have a claim for d.
func checkClaim(by string, d time.Duration) error {
	switch {
	case by == "" || len(by) > maxClaimText || !utf8.ValidString(by) || strings.ContainsRune(by, 0):
		return fmt.Errorf("by %.300q: it must be 1 to %d bytes of UTF-8 without NUL", by, maxClaimText)
	case d < minClaim || d > maxClaim:
		return fmt.Errorf("for %v: a claim is held for at least %v, and at most %v", d, minClaim, maxClaim)
	}
	return nil
}

// lookAtClaims is what the lookout asks. An error that does not pass by itself is for the callers
// to see for themselves.
func (l *Locker[Tx]) lookAtClaims(ctx context.Context, free map[lookout.Want]bool) {
	ctx, cancel := context.WithTimeout(ctx, dialects.ReleaseTimeout)
	defer cancel()
	var wants []lookout.Want
	var list []string
	for want := range free {
		wants, list = append(wants, want), append(list, fmt.Sprintf(`["%x","%x"]`, want.Claim, want.By))
	}
	found, err := l.find(ctx, false)
	var lines []string
	if err == nil {
		q := dialects.Query{SQL: found.Kinds.Claims.Look, Table: found.Kinds.Claims.Table}
		q.Args = []any{"[" + strings.Join(list, ",") + "]"}
		lines, err = l.ask(ctx, q)
	}
	final := err != nil && ctx.Err() == nil && l.driver.Classify(err) == dialects.Final
	for want := range free {
		free[want] = final
	}
	for _, line := range lines {
		n, _ := strconv.Atoi(line)
		free[wants[n-1]] = true
	}
}

// heldClaims are those of all claims, or of these keys, that are held. An installation from before
// there were claims has none, and its users may read none.
func (l *Locker[Tx]) heldClaims(ctx context.Context, sql dialects.ClaimSQL, keys []string) ([]Holding, error) {
	named, queries := map[string]string{}, []dialects.Query{{SQL: sql.List, Table: sql.Table, Reads: true}}
	for i, key := range keys {
		c := l.Claim(key)
		named[hex.EncodeToString(c.hash[:])] = key
		queries = append(queries[:i], c.query(sql, sql.Read))
	}
	var holdings []Holding
	for _, q := range queries {
		lines, err := l.ask(ctx, q)
		switch {
		case errors.Is(err, ErrNotInstalled), errors.Is(err, dialects.ErrNotPermitted):
			return nil, nil
		case err != nil:
			return nil, err
		}
		for i := range lines {
			row, _ := rowOf(lines[i:], nil)
			if row.left <= 0 {
				continue
			}
			hash := hex.EncodeToString(row.hash)
			key := cmp.Or(named[hash], label.Known(hash, row.name))
			holdings = append(holdings, Holding{
				Table: l.config.table, Column: claimColumn, Row: hash, Key: key,
				Holder: &Session{
					Key: key, By: row.By, Since: row.Since, Until: row.Until,
					For: row.Until.Add(-row.left).Sub(row.Since),
				},
				token: row.Token,
			})
		}
	}
	return holdings, nil
}

func (l *Locker[Tx]) breakClaim(ctx context.Context, h Holding) error {
	held := &Claimed[Tx]{claim: l.Claim(h.Key), by: h.Holder.By, token: h.token}
	if h.Row != hex.EncodeToString(held.claim.hash[:]) {
		return errors.New("the table does not show the key of this claim: inspect it by its key, and break that")
	}
	_, err := held.under(Apart(ctx), "Claim.Break", noWork[Tx], released)
	switch {
	case errors.Is(err, ErrClaimEnded):
		return fmt.Errorf("%w: %q does not have it any more", ErrNotHeld, h.Holder.By)
	case err == nil:
		l.config.logger.WarnContext(ctx, "txlock: ended a claim", "lock", h.name(), "by", h.Holder.By)
	}
	return err
}
