package txlock

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/txlock/txlock/dialects"
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
	mutex *Mutex[Tx] // of its row
	key   string
}

// Claim names something to be had for a while. A key is any bytes, from 1 to 255 of them; others
// are an error from the first call. Claim sends nothing.
func (l *Locker[Tx]) Claim(key string) *Claim[Tx] {
	hash := claimOf(key)
	row := l.kindRow("claim", key, hash[:], func(k dialects.Kinds) string { return k.Claims.Table })
	c := &Claim[Tx]{&Mutex[Tx]{locker: l, target: row}, key}
	if key == "" || len(key) > maxClaimText {
		c.mutex.err = fmt.Errorf("the key has %d bytes, and must have 1 to %d", len(key), maxClaimText)
	}
	return c
}

const (
	maxClaimText = 255
	minClaim     = time.Second
	maxClaim     = 366 * 24 * time.Hour
)

// Within returns a copy whose calls take at most d, the wait for a connection of the pool and that
// of Take included. d must be positive.
func (c *Claim[Tx]) Within(d time.Duration) *Claim[Tx] { return &Claim[Tx]{c.mutex.Within(d), c.key} }

// HeldError says who has a claim that was not to be had. It comes with [ErrNotAcquired].
type HeldError struct {
	By    string
	Until time.Time // by the database's clock; over while another call for the claim is under way

	busy bool
}

// Error says who has the claim, and until when.
func (e *HeldError) Error() string {
	text := "%q has it until %s"
	if e.busy {
		text += ", and another call for it is under way"
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
func (c *Claim[Tx]) State(ctx context.Context) (state ClaimState, err error) {
	row, err := c.within(ctx, func(ctx context.Context) (claimRow, error) {
		return c.ask(ctx, false, func(sql dialects.ClaimSQL) string { return sql.Read })
	})
	if err == nil && row.left > 0 {
		state = row.ClaimState
	}
	return state, c.mutex.wrap("Claim.State", err)
}

// within makes a call, which Within bounds.
func (c *Claim[Tx]) within(ctx context.Context, call func(context.Context) (claimRow, error)) (claimRow, error) {
	wait, cancel, err := c.mutex.limitWait(ctx)
	if err != nil {
		return claimRow{}, err
	}
	defer cancel()
	row, err := call(wait)
	return row, c.mutex.waitError(ctx, wait, err)
}

// ask runs a statement about the claim, whose hash is the first argument: by itself, or in the work
// of the Do whose context ctx is.
func (c *Claim[Tx]) ask(ctx context.Context, inWork bool, text func(dialects.ClaimSQL) string, args ...any) (
	row claimRow, err error,
) {
	q, err := c.query(ctx, inWork, text, args...)
	if err != nil {
		return row, err
	}
	ask := c.mutex.locker.ask
	if inWork {
		ask = c.mutex.locker.askInWork
	}
	return rowOf(ask(ctx, q))
}

func (c *Claim[Tx]) query(ctx context.Context, connected bool, text func(dialects.ClaimSQL) string, args ...any) (
	dialects.Query, error,
) {
	found, err := c.mutex.locker.find(ctx, connected)
	if err != nil {
		return dialects.Query{}, err
	}
	hash, sql := claimOf(c.key), found.Kinds.Claims
	q := dialects.Query{SQL: text(sql), Args: append([]any{hash[:]}, args...), Table: sql.Table}
	q.Reads = q.SQL == sql.Read
	return q, nil
}

// claimRow is what the row of a claim says.
type claimRow struct {
	ClaimState
	done   int // positive: the statement has done what it is for
	secret int64
	left   time.Duration // until the end, by the server's clock; not positive: nobody has it
	hash   []byte
	name   string // the key, for people; empty: it is hidden
}

// isReleased tells whether its holder has given it back.
func (r claimRow) isReleased() bool { return r.Until.Equal(time.UnixMicro(0)) }

// rowOf reads a line of dialects.ClaimSQL. Without one the row is zero.
func rowOf(lines []string, err error) (r claimRow, _ error) {
	if err != nil || len(lines) == 0 {
		return r, err
	}
	var since, until, left int64
	n, err := fmt.Sscanf(lines[0], "%d %d %d %d %d %d %x %x %x", &r.done, &r.Token, &r.secret, &since, &until, &left,
		&r.hash, &r.By, &r.name)
	if n == 8 { // it is hidden
		err = nil
	}
	r.Since, r.Until, r.left = time.UnixMicro(since), time.UnixMicro(until), time.Duration(left)*time.Microsecond
	return r, err
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

func newSecret() int64 {
	var random [8]byte
	_, _ = rand.Read(random[:]) // which does not fail
	return int64(binary.BigEndian.Uint64(random[:]) >> 1)
}

// claimOf hashes the key of a claim. The hash is part of what all clients agree on.
func claimOf(key string) [32]byte { return sha256.Sum256([]byte("txlock claim 1\x00" + key)) }
