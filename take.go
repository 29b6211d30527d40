package txlock

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
	"github.com/txlock/txlock/internal/lookout"
)

// TryTake takes the claim for d, unless another has it: then it is [ErrNotAcquired], and errors.As
// finds a [HeldError]. It waits for nobody, also not for a Do of the claim. By says who takes it,
// in 1 to 255 bytes of UTF-8 without NUL; the same By keeps its token, and moves the end to d from
// now. d is at least a second, and at most 366 days. After an error that is no HeldError it may
// have been taken all the same: take it again by the same By. In the work of a Do it is part of
// that Do's transaction, until whose end nobody else changes the claim; its token counts once that
// is committed. In a session that a Lock began it is [ErrInsideLock].
func (c *Claim[Tx]) TryTake(ctx context.Context, by string, d time.Duration) (*Claimed[Tx], error) {
	return c.take(ctx, "Claim.TryTake", by, d, false)
}

// Take is TryTake that waits while another has the claim, until ctx or Within ends that. Then the
// error is [ErrNotAcquired], and errors.As finds a [HeldError].
//
// Whoever waits takes no connection, and has no place in a queue: when the claim is over, or is
// released, any of them may be next. All that wait in a Locker share one look a second, and one at
// the end of each claim, but never more than ten a second, those included that take nothing. In the
// work of a Do, Take does not wait.
func (c *Claim[Tx]) Take(ctx context.Context, by string, d time.Duration) (*Claimed[Tx], error) {
	return c.take(ctx, "Claim.Take", by, d, true)
}

func (c *Claim[Tx]) take(ctx context.Context, verb, by string, d time.Duration, wait bool) (held *Claimed[Tx],
	err error,
) {
	err = checkFor(d)
	if !mayHold(by) {
		err = fmt.Errorf("by %.300q: it must be 1 to %d bytes of UTF-8 without NUL", by, maxClaimText)
	}
	if err != nil {
		return nil, c.mutex.wrap(verb, err)
	}
	ctx, trace := c.mutex.startTrace(ctx, verb, true)
	err = traced(trace, nil, func(func(context.Context, Tx) error) error {
		row, err := c.within(ctx, func(ctx context.Context) (claimRow, error) { return c.await(ctx, by, d, wait) })
		if err != nil {
			return c.mutex.wrap(verb, err)
		}
		claim := c.mutex.locker.Claim(c.key) // Within is for this call
		held = &Claimed[Tx]{claim, by, row.Token, row.secret, atomicTime(row.Until)}
		return nil
	})
	return held, err
}

// await tries until the claim is taken, or ctx ends.
func (c *Claim[Tx]) await(ctx context.Context, by string, d time.Duration, wait bool) (row claimRow, err error) {
	l := c.mutex.locker
	inWork, err := l.inWork(ctx)
	if err != nil {
		return row, err
	}
	want := lookout.Want{Claim: claimOf(c.key), By: by}
	var last *HeldError
	for done := func(bool) {}; ; {
		row, err = c.try(ctx, inWork, by, d)
		done(err == nil)
		if !errors.Is(err, ErrNotAcquired) {
			return row, err
		}
		if !errors.As(err, &last) && last != nil {
			err = fmt.Errorf("%w: %w", err, last)
		}
		if !wait || inWork || ctx.Err() != nil {
			return row, err
		}
		var ended error
		if done, ended = l.lookout.Wait(ctx, want, row.left); ended != nil && ctx.Err() == nil {
			err = fmt.Errorf("%w: %w", ended, err)
		}
		if ended != nil {
			return row, err
		}
	}
}

// try tries once. It asks again where the answer says nothing: somebody has made the row at this
// moment, or was first on another node of a cluster.
func (c *Claim[Tx]) try(ctx context.Context, inWork bool, by string, d time.Duration) (row claimRow, err error) {
	name, hash, makes := "", claimOf(c.key), 1
	if !c.mutex.locker.config.hidden {
		name = label.ASCII(c.key)
	}
	ask := func(ctx context.Context, inWork bool, d time.Duration, makes int) (claimRow, error) {
		secret, micros := newSecret(), d.Microseconds()
		return c.ask(ctx,
			inWork, func(sql dialects.ClaimSQL) string { return sql.Take }, by, int64(makes), secret, name,
			micros, hash[:], by, secret, name, micros, hash[:], by, hash[:])
	}
	if inWork { // others would wait for a row that it has made
		makes = 0
	}
	for range 5 {
		row, err = ask(ctx, inWork, d, makes)
		switch {
		case errors.Is(err, ErrDeadlock) && !inWork:
		case err != nil:
			return row, err
		case row.done > 0 && row.By == by && row.left > 0:
			return row, nil
		case row.hash != nil:
			busy := row.left <= 0 || row.By == by
			return row, fmt.Errorf("%w: %w", ErrNotAcquired, &HeldError{row.By, row.Until, busy})
		case inWork: // one that is over is made outside
			brief, cancel := context.WithTimeout(ctx, secondConn)
			_, err = ask(brief, false, -time.Microsecond, 1)
			cancel()
			if err != nil {
				return row, fmt.Errorf("make the row of a new claim on another connection: %w", err)
			}
		}
	}
	if err == nil {
		err = fmt.Errorf("%w: the table of claims is that of an older version: run Install", ErrNotInstalled)
	}
	return row, err
}

// secondConn bounds the wait for another connection of the pool, which may wait for this call.
const secondConn = time.Second

// lookAtClaims is what the lookout asks. An error that does not pass by itself is for the callers
// to see for themselves.
func (l *Locker[Tx]) lookAtClaims(ctx context.Context, wants []lookout.Want) (free []lookout.Want) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
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
		look := dialects.Query{SQL: sql.Look, Args: []any{string(list), string(list)}, Table: sql.Table}
		lines, err = l.ask(ctx, look)
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
