package txlock

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
//
// What a holder does in [Claimed.Do], or behind [Claimed.LockTx], is committed only if the claim
// was still held when its lock was granted. Outside the database a claim is a lease: its holder may
// be late. Send [Claimed.Token] with what is written elsewhere, and have a smaller one refused.
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
	row := l.kindRow(claimColumn, key, c.hash[:], func(k dialects.Kinds) string { return k.Claims.Table })
	c.mutex = &Mutex[Tx]{locker: l, target: row}
	if key == "" || len(key) > maxClaimText {
		c.made().err = fmt.Errorf("the key has %d bytes, and must have 1 to %d", len(key), maxClaimText)
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
	row, err := c.within(ctx, func(ctx context.Context) (claimRow, error) {
		return c.ask(ctx, func(sql dialects.ClaimSQL) string { return sql.Read })
	})
	if err == nil && row.left > 0 {
		state = row.ClaimState
	}
	return state, c.made().wrap("Claim.State", err)
}

// within makes a call, which Within bounds.
func (c *Claim[Tx]) within(ctx context.Context, call func(context.Context) (claimRow, error)) (claimRow, error) {
	wait, cancel, err := c.made().limitWait(ctx)
	if err != nil {
		return claimRow{}, err
	}
	defer cancel()
	row, err := call(wait)
	return row, c.made().waitError(ctx, wait, err)
}

// ask runs a statement about the claim by itself.
func (c *Claim[Tx]) ask(ctx context.Context, text func(dialects.ClaimSQL) string, args ...any) (claimRow, error) {
	found, err := c.made().locker.find(ctx, false)
	if err != nil {
		return claimRow{}, err
	}
	return rowOf(c.made().locker.ask(ctx, c.query(found.Kinds.Claims, text(found.Kinds.Claims), args...)))
}

func (c *Claim[Tx]) query(sql dialects.ClaimSQL, text string, args ...any) dialects.Query {
	return dialects.Query{
		SQL: text, Args: append([]any{c.hash[:]}, args...), Table: sql.Table, Reads: text == sql.Read,
	}
}

// claimRow is what the row of a claim says. It is zero where there is no row.
type claimRow struct {
	ClaimState
	done   int // positive: the statement has done what it is for
	secret int64
	left   time.Duration // until the end, by the server's clock; not positive: nobody has it
	hash   []byte
	name   string // the key, for people; empty: it is hidden
}

// rowOf reads a line of dialects.ClaimSQL.
func rowOf(lines []string, err error) (r claimRow, _ error) {
	if err != nil || len(lines) == 0 {
		return r, err
	}
	var since, until, left int64
	n, err := fmt.Sscanf(lines[0], "%d %d %d %d %d %d %x %x %x", &r.done, &r.Token, &r.secret, &since, &until, &left,
		&r.hash, &r.By, &r.name)
	if n >= 7 { // the holder of a row that nobody has had is empty, and so is a name that is hidden
		err = nil
	}
	r.Since, r.Until, r.left = time.UnixMicro(since), time.UnixMicro(until), time.Duration(left)*time.Microsecond
	return r, err
}

// HeldError says who has a claim that was not to be had. It comes with [ErrNotAcquired].
type HeldError struct {
	By    string
	Until time.Time // by the database's clock; over while another call for the claim is under way

	busy bool
}

// Error says who has the claim, and until when.
func (e *HeldError) Error() string {
	text := fmt.Sprintf("%q has it until %s", e.By, e.Until.UTC().Format(time.RFC3339Nano))
	if e.busy {
		text += ", and another call for it is under way"
	}
	return text
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

// Take is TryTake that waits while another has the claim, until ctx or Within ends that. Then the
// error is [ErrNotAcquired], and errors.As finds a [HeldError]. Whoever waits takes no connection,
// and has no place in a queue: when the claim is over, or is released, any of them may be next. All
// that wait in a Locker share one look a second, and one at the end of each claim, but never more
// than ten a second, those included that take nothing.
func (c *Claim[Tx]) Take(ctx context.Context, by string, d time.Duration) (*Claimed[Tx], error) {
	return c.take(ctx, "Claim.Take", by, d, true)
}

var errTakeInside = errors.New("a claim is not taken inside a Do or a Lock: take it before, or use txlock.Apart")

func (c *Claim[Tx]) take(ctx context.Context, verb, by string, d time.Duration, wait bool) (held *Claimed[Tx],
	err error,
) {
	l := c.made().locker
	switch err = checkFor(d); {
	case !mayHold(by):
		err = fmt.Errorf("by %.300q: it must be 1 to %d bytes of UTF-8 without NUL", by, maxClaimText)
	case l.carriesOpen(ctx):
		err = errTakeInside
	}
	if err != nil {
		return nil, c.made().wrap(verb, err)
	}
	ctx, trace := c.made().startTrace(ctx, verb, true)
	told := false
	defer func() {
		if held != nil && !told { // the Tracer panicked
			end := func(sql dialects.ClaimSQL) string { return sql.End }
			_, _ = c.ask(context.WithoutCancel(ctx), end, int64(0), held.secret)
		}
	}()
	err = traced(trace, nil, func(func(context.Context, Tx) error) error {
		row, err := c.within(ctx, func(ctx context.Context) (claimRow, error) { return c.await(ctx, by, d, wait) })
		if err == nil {
			// Within is for this call.
			held = &Claimed[Tx]{claim: l.Claim(c.key), by: by, token: row.Token, secret: row.secret}
			held.until.Store(row.Until.UnixMicro())
		}
		return c.made().wrap(verb, err)
	})
	told = true
	return held, err
}

// await tries until the claim is taken, or ctx ends.
func (c *Claim[Tx]) await(ctx context.Context, by string, d time.Duration, wait bool) (row claimRow, err error) {
	try := func() (left time.Duration, again bool) {
		row, err = c.try(ctx, by, d)
		return row.left, wait && ctx.Err() == nil && errors.Is(err, ErrNotAcquired)
	}
	if left, again := try(); again {
		ended := c.made().locker.lookout.Wait(ctx, lookout.Want{Claim: c.hash, By: by}, left, try)
		if ended != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", ended, err)
		}
	}
	return row, err
}

// try tries once. It asks again where the answer says nothing: somebody has made the row at this
// moment, or was first on another node of a cluster.
func (c *Claim[Tx]) try(ctx context.Context, by string, d time.Duration) (row claimRow, err error) {
	name := ""
	if !c.made().locker.config.hidden {
		name = label.ASCII(c.key)
	}
	random, _ := rand.Int(rand.Reader, big.NewInt(math.MaxInt64)) // which does not fail
	secret := random.Int64()
	take := func(sql dialects.ClaimSQL) string { return sql.Take }
	for range 5 {
		row, err = c.ask(ctx, take, by, secret, name, d.Microseconds())
		switch {
		case errors.Is(err, ErrDeadlock):
		case err != nil:
			return row, err
		case row.done > 0 && row.By == by && row.left > 0:
			return row, nil
		case row.hash != nil:
			busy := row.left <= 0 || row.By == by
			return row, fmt.Errorf("%w: %w", ErrNotAcquired, &HeldError{row.By, row.Until, busy})
		}
	}
	if err == nil {
		err = fmt.Errorf("%w: the table of claims is that of an older version: run Install", ErrNotInstalled)
	}
	return row, err
}

// mayHold tells whether by may have a claim.
func mayHold(by string) bool {
	return by != "" && len(by) <= maxClaimText && utf8.ValidString(by) && !strings.ContainsRune(by, 0)
}

func checkFor(d time.Duration) error {
	if d < minClaim || d > maxClaim {
		return fmt.Errorf("for %v: a claim is held for at least %v, and at most %v", d, minClaim, maxClaim)
	}
	return nil
}

// lookAtClaims is what the lookout asks. An error that does not pass by itself is for the callers
// to see for themselves.
func (l *Locker[Tx]) lookAtClaims(ctx context.Context, wants []lookout.Want) (free []lookout.Want) {
	ctx, cancel := context.WithTimeout(ctx, dialects.ReleaseTimeout)
	defer cancel()
	pairs := make([][2]string, len(wants))
	for i, want := range wants {
		pairs[i] = [2]string{hex.EncodeToString(want.Claim[:]), hex.EncodeToString([]byte(want.By))}
	}
	list, _ := json.Marshal(pairs) // of strings
	var lines []string
	found, err := l.find(ctx, false)
	if err == nil {
		sql := found.Kinds.Claims
		lines, err = l.ask(ctx, dialects.Query{SQL: sql.Look, Args: []any{string(list)}, Table: sql.Table})
	}
	if err != nil && ctx.Err() == nil && l.driver.Classify(err) == dialects.Final {
		return wants
	}
	for _, line := range lines {
		if n, err := strconv.Atoi(line); err == nil {
			free = append(free, wants[n-1])
		}
	}
	return free
}

// heldClaims are those of all claims, or of these keys, that are held. An installation from before
// there were claims has none, and its users may read none.
func (l *Locker[Tx]) heldClaims(ctx context.Context, keys []string) (holdings []Holding, err error) {
	found, err := l.find(ctx, false)
	if err != nil {
		return nil, err
	}
	sql, named := found.Kinds.Claims, map[string]string{}
	queries := []dialects.Query{{SQL: sql.List, Table: sql.Table, Reads: true}}
	for i, key := range keys {
		c := l.Claim(key)
		named[hex.EncodeToString(c.hash[:])] = key
		queries = append(queries[:i], c.query(sql, sql.Read))
	}
	for _, q := range queries {
		lines, err := l.ask(ctx, q)
		switch {
		case errors.Is(err, ErrNotInstalled), errors.Is(err, dialects.ErrNotPermitted):
			return nil, nil
		case err != nil:
			return nil, err
		}
		for i := range lines {
			row, err := rowOf(lines[i:], nil)
			if err != nil || row.left <= 0 {
				continue
			}
			hash := hex.EncodeToString(row.hash)
			key := cmp.Or(named[hash], label.Known(dialects.Named{Hash: hash, Name: row.name}))
			holdings = append(holdings, Holding{
				Table: l.config.table, Column: claimColumn, Row: hash, Key: key,
				Holder: &Session{
					Key: key, By: row.By, Since: row.Since, Until: row.Until, token: row.Token, secret: &row.secret,
					For: row.Until.Add(-row.left).Sub(row.Since),
				},
			})
		}
	}
	return holdings, nil
}

func (l *Locker[Tx]) breakClaim(ctx context.Context, h Holding) error {
	c := l.Claim(h.Key)
	if h.Row != hex.EncodeToString(c.hash[:]) {
		return errors.New("the table does not show the key of this claim: inspect it by its key, and break that")
	}
	secret := *cmp.Or(h.Holder.secret, new(int64)) // nil in a Holding that nobody has inspected
	held := &Claimed[Tx]{claim: c, by: h.Holder.By, token: h.Holder.token, secret: secret}
	_, err := held.move(Apart(ctx), "Claim.Break", func(now time.Time) time.Time { return now })
	switch {
	case errors.Is(err, ErrClaimEnded):
		return fmt.Errorf("%w: %q does not have it any more", ErrNotHeld, h.Holder.By)
	case err == nil:
		l.config.logger.WarnContext(ctx, "txlock: ended a claim", "lock", h.name(), "by", h.Holder.By)
	}
	return err
}
