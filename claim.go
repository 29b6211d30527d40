package txlock

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"math/big"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/queue"
)

// Claim is something that one holder at a time has for a while, without a connection: a seat in a
// checkout, an article that somebody edits. The database's clock says until when.
type Claim[Tx any] struct {
	mutex     *Mutex[Tx] // of its row
	key, hash string     // the hash is how the table knows the key
}

func (c *Claim[Tx]) made() *Mutex[Tx] { return made(c.mutex, "Claim: Locker.Claim") }

const (
	maxName  = 255 // bytes
	minClaim = time.Second
	maxClaim = 366 * 24 * time.Hour
)

// Claim names something to be had for a while, by a key of 1 to 255 bytes.
func (l *Locker[Tx]) Claim(key string) *Claim[Tx] {
	hash := sha256.Sum256([]byte(key)) // as label.Hash
	c := l.claim(key, string(hash[:]))
	if key == "" || len(key) > maxName {
		c.mutex.err = fmt.Errorf("the key has %d bytes, and must have 1 to %d", len(key), maxName)
	}
	return c
}

func (l *Locker[Tx]) claim(key, hash string) *Claim[Tx] {
	return &Claim[Tx]{&Mutex[Tx]{locker: l, target: l.claims(key, hash)}, key, hash}
}

// Within returns a copy whose calls take at most d, the wait for a connection of the pool and that
// of Take included. d must be positive.
func (c *Claim[Tx]) Within(d time.Duration) *Claim[Tx] {
	return &Claim[Tx]{c.made().Within(d), c.key, c.hash}
}

// ClaimState is who has a claim. It is zero when nobody has it.
type ClaimState struct {
	By           string
	Token        int64
	Since, Until time.Time // by the database's clock
}

// State reads who has the claim now, in one round trip. It waits for nobody.
func (c *Claim[Tx]) State(ctx context.Context) (state ClaimState, err error) {
	err = c.made().bounded(ctx, "Claim.State", func(ctx context.Context) error {
		row, err := c.ask(ctx, func(k dialects.Kinds) dialects.Query { return k.Claims.Read.With([]byte(c.hash)) })
		state = row.ClaimState
		return err
	})
	return state, err
}

// ask runs a query about the claim by itself.
func (c *Claim[Tx]) ask(ctx context.Context, query func(dialects.Kinds) dialects.Query) (claimRow, error) {
	lines, err := c.mutex.locker.askKind(ctx, query)
	return claimRowOf(strings.Join(lines, "")), err
}

// claimRow is what the row of a claim says. It is zero where there is none.
type claimRow struct {
	ClaimState
	done       bool // the statement has done what it is for
	secret     int64
	left       time.Duration // by the server's clock; not positive: nobody has it
	hash, name string        // the name is for people; empty: it is hidden
}

// claimRowOf reads a line of dialects.ClaimSQL.
func claimRowOf(line string) (r claimRow) {
	var done, since, until, left int64
	n, _ := fmt.Sscanf(line, "%d %d %d %d %d %d %x %x %x", &done, &r.Token, &r.secret, &since, &until, &left, &r.hash,
		&r.By, &r.name)
	if n > 0 { // what comes last may be empty
		r.Since, r.Until = time.UnixMicro(since), time.UnixMicro(until)
		r.done, r.left = done > 0, time.Duration(left)*time.Microsecond
	}
	return r
}

// HeldError comes with [ErrNotAcquired] of a claim, and says who has it.
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

// TryTake takes the claim for d, from 1 s to 366 days, unless another has it: that is
// [ErrNotAcquired] with a [HeldError]. It waits for nobody, also not for a Do of the claim. By is 1
// to 255 bytes of UTF-8 without NUL; the same By keeps its token, and moves the end to d from now.
// After an error that is no HeldError take it again by the same By: it may have been taken. In a Do
// or a Lock it is an error: take the claim before, or with [Apart].
func (c *Claim[Tx]) TryTake(ctx context.Context, by string, d time.Duration) (*Claimed[Tx], error) {
	return c.take(ctx, "Claim.TryTake", by, d, false)
}

// Take is TryTake that waits, without a connection, while another has the claim, until ctx or
// Within ends that. Those in a Locker wait in line: the first tries once a second at most, and when
// the claim ends or is released here. Of several processes, any may be next.
func (c *Claim[Tx]) Take(ctx context.Context, by string, d time.Duration) (*Claimed[Tx], error) {
	return c.take(ctx, "Claim.Take", by, d, true)
}

// errInSession refuses a kind that is not part of the transaction of a session.
var errInSession = errors.New("it is not taken in a Do or a Lock: take it before, or use txlock.Apart")

func (c *Claim[Tx]) take(ctx context.Context, verb, by string, d time.Duration, wait bool) (*Claimed[Tx], error) {
	l, err := c.made().locker, checkClaim(by, d)
	if err == nil && l.carriesOpen(ctx) {
		err = errInSession
	}
	if err != nil {
		return nil, c.mutex.wrap(verb, err)
	}
	ctx, trace := c.mutex.startTrace(ctx, verb, true)
	var row claimRow
	err = c.mutex.bounded(ctx, verb, func(ctx context.Context) (err error) {
		if row, err = c.try(ctx, by, d); wait && errors.Is(err, ErrNotAcquired) {
			row, err = c.await(ctx, by, d, row, err)
		}
		return err
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

// await waits in line behind a miss, and then tries. An error that passes by itself ends no wait.
// Who has the claim waits for a call of his own, and apart from those that wait for him.
func (c *Claim[Tx]) await(ctx context.Context, by string, d time.Duration, row claimRow, err error) (claimRow, error) {
	l, line := c.mutex.locker, c.hash
	if row.By == by && row.left > 0 {
		line += by
	}
	place := l.candidates.Enter(lineName{column: string(dialects.KindClaim), values: line}, false)
	defer place.GoOn(queue.Left)
	if left := l.awaitPlace(ctx, ctx, place); left != nil {
		return row, joinErrors(left, err)
	}
	freed := l.firstFor(line)
	defer l.first.Delete(line)
	defer l.awaited.Add(-1)
	for claims := l.awaited.Add(1); ; claims = l.awaited.Load() {
		row, err = c.try(ctx, by, d)
		if err == nil || !errors.Is(err, ErrNotAcquired) && l.driver.Classify(err) == dialects.Final {
			return row, err
		}
		pause := time.Duration(1+claims/10) * time.Second // ten statements a second at most
		if row.left > 0 {
			pause = min(pause, row.left)
		}
		if !l.pause(ctx, pause, freed) {
			return row, err
		}
	}
}

// try tries once.
func (c *Claim[Tx]) try(ctx context.Context, by string, d time.Duration) (claimRow, error) {
	random, _ := rand.Int(rand.Reader, big.NewInt(math.MaxInt64)) // which does not fail
	row, err := c.ask(ctx, func(k dialects.Kinds) dialects.Query {
		name := c.mutex.locker.config.storedName(c.key)
		return k.Claims.Take.With([]byte(c.hash), by, 1+random.Int64(), name, d.Microseconds())
	})
	if err != nil && !errors.Is(err, ErrDeadlock) || row.done { // a deadlock: another node of a cluster was first
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
	if d < minClaim || d > maxClaim {
		return fmt.Errorf("for %v: a claim is held for at least %v, and at most %v", d, minClaim, maxClaim)
	}
	return checkName("by", by)
}

// checkName is for the name of a holder, as the tables of kinds have it.
func checkName(what, name string) error {
	if name == "" || len(name) > maxName || !utf8.ValidString(name) || strings.ContainsRune(name, 0) {
		return fmt.Errorf("%s %.300q has %d bytes: it must be 1 to %d bytes of UTF-8 without NUL", what, name,
			len(name), maxName)
	}
	return nil
}
