// Package exclusion proves on two sessions that a server locks rows.
package exclusion

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/txlock/txlock/dialects"
)

// Conn is a connection on which Prove tries to lock slots.
type Conn interface {
	// Begin begins a transaction. With its answer the server has a session for it: a pooler in
	// between may have none to give.
	Begin(ctx context.Context) error
	// TryLock locks a slot in that transaction, with NOWAIT or with SKIP LOCKED. Refused
	// is true when the server answered with exactly the error for a row that another session
	// holds. Any other error is err. Passing says that others may hold the slot: what a lock passes
	// in front of the row is then passed too, and Refused when it is taken. Without, the row alone
	// is asked for, of which the caller knows that the other Conn has it.
	TryLock(ctx context.Context, slot int, clause string, passing bool) (rows int, refused bool, err error)
	// TryShare locks a slot in that transaction as a shared lock does, or alone as an exclusive one
	// does beside shared ones, and does not wait.
	TryShare(ctx context.Context, slot int, alone bool) (granted bool, err error)
	// Rollback ends the transaction, if there is one.
	Rollback(ctx context.Context) error
}

// NoVerdict marks an error that says nothing about the engine, as of a broken connection or a
// missing privilege. Prove returns it as it is.
func NoVerdict(err error) error {
	if err == nil {
		return nil
	}
	return noVerdict{err}
}

type noVerdict struct{ error }

func (n noVerdict) Unwrap() error { return n.error }

// Beside gives work a second connection, which with has, and which may not come in time.
func Beside[C any](ctx context.Context, with func(context.Context, func(C) error) error, work func(C) error) error {
	brief, cancel := context.WithTimeout(ctx, secondWithin)
	defer cancel()
	came := false
	err := with(brief, func(c C) error {
		came = true
		return work(c)
	})
	if !came {
		return noSecond(err)
	}
	return err
}

// secondWithin is how long a proof waits for a second connection, or session of the server.
const secondWithin = 5 * time.Second

// errNoSecond says nothing about the engine.
var errNoSecond = errors.New("no second connection came, so whether the server locks was not checked")

func noSecond(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", errNoSecond, err)
}

// begun is a Conn that has begun its transaction before it locks.
type begun struct{ Conn }

func (b begun) begin(ctx context.Context) error {
	brief, cancel := context.WithTimeout(ctx, secondWithin)
	defer cancel()
	return noSecond(b.Begin(brief))
}

func (b begun) TryLock(ctx context.Context, slot int, clause string, passing bool) (int, bool, error) {
	if err := b.begin(ctx); err != nil {
		return 0, false, err
	}
	return b.Conn.TryLock(ctx, slot, clause, passing)
}

func (b begun) TryShare(ctx context.Context, slot int, alone bool) (bool, error) {
	if err := b.begin(ctx); err != nil {
		return false, err
	}
	return b.Conn.TryShare(ctx, slot, alone)
}

// Patience is how long a proof may take. An engine that ignores NOWAIT waits for the row.
const Patience = 15 * time.Second

const (
	nowait     = "NOWAIT"
	skipLocked = "SKIP LOCKED"
)

// Prove shows that the server locks rows. A slot that holder has must be refused to rival with the
// exact error, skipped by SKIP LOCKED, and free for rival afterwards. One that holder shares must
// be refused to rival alone, and not shared, where sharing is asked for. Otherwise the error is
// dialects.ErrUnsafeEngine. Slots that others hold prove nothing, and are an error without that
// name. "An error came back" would be no proof: some engines answer NOWAIT with a syntax error, and
// without it wait for nobody.
func Prove(ctx context.Context, slots int, holder, rival Conn, sharing bool) error {
	const attempts = 10 // another client of the same table may hold a slot
	proofs := []func(ctx context.Context, slot int, holder, rival Conn) (busy bool, err error){proveOn}
	if sharing {
		proofs = append(proofs, proveSharing)
	}
	for range attempts {
		var busy bool
		var reason error
		for _, proof := range proofs {
			busy, reason = proof(ctx, rand.IntN(slots), begun{holder}, begun{rival})
			reason = cmp.Or(reason, holder.Rollback(ctx), rival.Rollback(ctx))
			if busy || reason != nil {
				break
			}
		}
		switch {
		case reason == nil && !busy:
			return nil
		case errors.Is(reason, errNoSecond):
			return reason
		case ctx.Err() != nil:
			return fmt.Errorf("%w: an answer did not come in time, as if it waited for the row: %w",
				dialects.ErrUnsafeEngine, ctx.Err())
		case errors.As(reason, new(noVerdict)):
			return reason
		case !busy:
			return fmt.Errorf("%w: %w", dialects.ErrUnsafeEngine, reason)
		}
	}
	return NoVerdict(fmt.Errorf("nothing is proved: %d random slots in a row were held by others", attempts))
}

func proveOn(ctx context.Context, slot int, holder, rival Conn) (busy bool, err error) {
	rows, refused, err := holder.TryLock(ctx, slot, nowait, true)
	switch {
	case err != nil:
		return false, fmt.Errorf("SELECT … FOR UPDATE NOWAIT on a free row: %w", err)
	case refused:
		return true, nil
	case rows != 1:
		return false, fmt.Errorf("SELECT … FOR UPDATE NOWAIT on slot %d returned %d rows", slot, rows)
	}

	rows, refused, err = rival.TryLock(ctx, slot, nowait, false)
	switch {
	case err != nil:
		return false, fmt.Errorf("NOWAIT on a held row failed with the wrong error: %w", err)
	case !refused:
		return false, fmt.Errorf("two sessions hold slot %d at once: NOWAIT on a held row returned %d rows",
			slot, rows)
	}
	if err := rival.Rollback(ctx); err != nil {
		return false, err
	}

	rows, refused, err = rival.TryLock(ctx, slot, skipLocked, false)
	switch {
	case err != nil:
		return false, fmt.Errorf("SKIP LOCKED on a held row failed: %w", err)
	case refused || rows != 0:
		return false, fmt.Errorf("SKIP LOCKED did not skip held slot %d: %d rows", slot, rows)
	}
	if err := rival.Rollback(ctx); err != nil {
		return false, err
	}

	if err := holder.Rollback(ctx); err != nil {
		return false, err
	}
	rows, refused, err = rival.TryLock(ctx, slot, nowait, true)
	switch {
	case err != nil:
		return false, fmt.Errorf("NOWAIT on a released row: %w", err)
	case refused:
		return true, nil
	case rows != 1:
		return false, fmt.Errorf("NOWAIT on released slot %d returned %d rows", slot, rows)
	}
	return false, nil
}

// proveSharing is proveOn for shared locks. Busy says that another client has the slot, or waits.
func proveSharing(ctx context.Context, slot int, holder, rival Conn) (busy bool, err error) {
	granted, err := holder.TryShare(ctx, slot, false)
	if err != nil {
		return false, fmt.Errorf("a shared lock of a free slot: %w", err)
	}
	if !granted {
		return true, nil
	}
	granted, err = rival.TryShare(ctx, slot, true)
	switch {
	case err != nil:
		return false, fmt.Errorf("a lock of a shared slot failed with the wrong error: %w", err)
	case granted:
		return false, fmt.Errorf("one session shares slot %d, and another holds it alone", slot)
	}
	if err := rival.Rollback(ctx); err != nil {
		return false, err
	}
	granted, err = rival.TryShare(ctx, slot, false)
	if err != nil {
		return false, fmt.Errorf("a second shared lock of a slot: %w", err)
	}
	return !granted, nil
}
