package client

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// WaitName is the savepoint in front of a wait.
const WaitName = "txlock_wait"

// A savepoint is in front of a wait in a transaction that has more to lose. It is set, rolled back
// to and released.
var (
	WaitSavepoint = sqltext.Statement{SQL: "savepoint " + WaitName, Silent: true, Opens: true}
	UndoWait      = sqltext.Silent("rollback to savepoint " + WaitName)
	ReleaseWait   = sqltext.Silent("release savepoint " + WaitName)
)

// unheard is how long nobody interrupts a flight whose savepoint was not confirmed. After that the
// answer is late, and not the savepoint: a pooler may keep it until it has all.
const unheard = time.Second

// BehindSavepoint is q for the flight that begins now. A cancel that came before its savepoint is
// set would cost the transaction, so none is sent before the sender calls safe.
func (q Querier) BehindSavepoint() (guarded Querier, safe func()) {
	var set atomic.Bool
	sent, guarded := time.Now(), q
	guarded.Interrupt = func(ctx context.Context) error {
		if !set.Load() && time.Since(sent) < unheard {
			return nil
		}
		return q.Interrupt(ctx)
	}
	return guarded, func() { set.Store(true) }
}

// inTwo is a Flight that sends the savepoint by itself, where nothing else would tell when it is
// set.
func inTwo(run func(context.Context, sqltext.Script) ([][]string, error)) func(context.Context, sqltext.Script,
	func()) ([][]string, error) {
	return func(ctx context.Context, s sqltext.Script, safe func()) ([][]string, error) {
		columns, err := run(ctx, s[:1])
		if err != nil {
			return columns, err
		}
		safe()
		further, err := run(ctx, s[1:])
		return append(columns, further...), err
	}
}

// behindLock sends statements of the caller's when what is in front of them has run. To read them,
// the server locks their tables.
func behindLock(run func(context.Context, sqltext.Script) ([][]string, error)) func(context.Context, sqltext.Script) (
	[][]string, error) {
	return func(ctx context.Context, s sqltext.Script) ([][]string, error) {
		first := s.FirstWork()
		if first <= 0 {
			return run(ctx, s)
		}
		columns, err := run(ctx, s[:first])
		if err != nil {
			return columns, err
		}
		further, err := run(ctx, s[first:])
		return append(columns, further...), err
	}
}
