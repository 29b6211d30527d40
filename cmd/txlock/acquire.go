package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txlock/txlock"
)

// acquire waits for the lock. After a second it says who holds it.
func (j *job) acquire(ctx context.Context, locks locker) (held, error) {
	j.asked = time.Now()
	notice := j.announce(ctx, locks)
	lock, err := j.lock(ctx, locks)
	announced := notice.end()
	switch {
	case err == nil:
		if announced { // standard error may be blocked
			briefly(func() { j.say("%s is ours after %v", j.name(), round(time.Since(j.asked))) })
		}
		return lock, nil
	case ctx.Err() != nil:
		return nil, j.failed(ctx, "waiting for "+j.name(), err)
	case errors.Is(err, txlock.ErrNotAcquired) && j.cut(err):
		_, reason, _ := strings.Cut(err.Error(), txlock.ErrNotAcquired.Error()+": ")
		return nil, &ending{code: exitError, text: fmt.Sprintf(
			`waiting for %s: the server ended the wait: %s; see "txlock doctor"`, j.name(), reason)}
	case errors.Is(err, txlock.ErrNotAcquired):
		return nil, j.missed(ctx, locks)
	case errors.Is(err, txlock.ErrNotInstalled) && !homeless(err) && !j.unfenced:
		return nil, &ending{code: exitNotSetUp, text: fmt.Sprintf(
			`%s: %s; run "txlock install" once%s, or --no-token if only tokens are missing`,
			j.name(), reasonOf(err), j.tableFlag())}
	}
	return nil, j.failed(ctx, "waiting for "+j.name(), err)
}

// lock waits as --wait and --try say. A try does not wait for holders, so it gives the server only
// as much time as connecting may take.
func (j *job) lock(ctx context.Context, locks locker) (held, error) {
	take := func(ctx context.Context) (held, error) {
		if !j.claim {
			return locks.lock(ctx, j.wanted, j.wait, j.try)
		}
		held, err := locks.take(ctx, j.keys[0], cmp.Or(j.by, runner()), j.span, j.wait, j.try)
		if err != nil {
			return nil, err
		}
		asked := time.Now() // when a wait has ended nobody here knows
		if _, err = held.Extend(ctx, j.span); err != nil {
			clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseLimit)
			defer cancel()
			_ = held.Release(clean)
			return nil, err
		}
		return keep(held, asked, j.span), nil
	}
	if !j.try {
		return take(ctx)
	}
	bounded, cancel := context.WithTimeout(ctx, j.server.Timeout)
	defer cancel()
	lock, err := take(bounded)
	if err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
		err = &ending{code: exitUnreachable, text: fmt.Sprintf(
			"trying %s: no answer within %v: %s is silent, or somebody has locked the whole table %s",
			j.name(), j.server.Timeout, j.server.Address, j.table)}
	}
	return lock, err
}

// cut reports whether the server ended the wait too early, by a limit of its own or by its
// administrator.
func (j *job) cut(err error) bool {
	if j.try {
		var pg *pgconn.PgError
		return errors.As(err, &pg) && pg.Code == "57014" // statement_timeout, among others
	}
	return !errors.Is(err, context.DeadlineExceeded)
}

// missed says that the lock was not acquired, and who holds it. With -E 0 it says so where another
// key of the same slot is held: that may be for ever, and nobody would know why nothing runs.
func (j *job) missed(ctx context.Context, locks locker) error {
	end := &ending{code: j.conflict, own: true}
	holdings := j.look(ctx, locks, 2*patience)
	if j.conflict == 0 && !j.verbose && !slices.ContainsFunc(holdings, j.isOther(holdings)) {
		return end
	}
	end.text = j.name() + " was not acquired"
	if j.wait > 0 {
		end.text += " within " + j.wait.String()
	}
	if holders := j.holders(holdings); holders != "" {
		end.text += ": " + holders
	}
	return end
}
