package client

import (
	"context"
	"net"
	"time"

	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// sender sends a script, in one round trip where it can, and returns the first column of each
// statement's rows.
type sender func(ctx context.Context, s sqltext.Script) ([][]string, error)

// Line runs scripts on one connection, whichever client library it belongs to.
type Line struct {
	send    sender
	backend *backend // nil: nobody has to know it

	Blind bool   // a script that begins with WaitSavepoint returns no columns
	Tag   string // begins statements of the caller's, by which Interrupt finds them
	// Interrupt ends the statement that is running, from outside the connection.
	Interrupt func(ctx context.Context) error
	// Cut closes the connection under a statement that interrupts do not end; nil: the end of the
	// statement's context does.
	Cut    func()
	Socket net.Conn
}

// Run sends a script and returns the first column of each statement's rows. After an error no
// statement behind the failed one has run.
func (l Line) Run(ctx context.Context, s sqltext.Script) ([][]string, error) {
	return l.backend.run(ctx, s, l.send)
}

// Abandon rolls back what a script has left open. Where that fails, the connection is closed when
// it goes back.
func (l Line) Abandon(ctx context.Context) {
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	_, _ = l.Run(clean, sqltext.Script{sqltext.Silent("rollback")})
}

// WaitName is the savepoint in front of a wait.
const WaitName = "txlock_wait"

// A savepoint is in front of a wait in a transaction that has more to lose. It is set, rolled back
// to and released.
var (
	WaitSavepoint = sqltext.Statement{SQL: "savepoint " + WaitName, Silent: true, Opens: true}
	UndoWait      = sqltext.Silent("rollback to savepoint " + WaitName)
	ReleaseWait   = sqltext.Silent("release savepoint " + WaitName)
)

// early is how long nobody interrupts a script with a savepoint in front. A cancel that came before
// that is set would cost the transaction. It travels on a connection of its own, so only one
// that begins together with the script could overtake it.
const early = 5 * time.Millisecond

// BehindSavepoint is l for the script that begins now.
func (l Line) BehindSavepoint() (guarded Line) {
	sent, guarded := time.Now(), l
	guarded.Interrupt = func(ctx context.Context) error {
		time.Sleep(early - time.Since(sent))
		return l.Interrupt(ctx)
	}
	return guarded
}
