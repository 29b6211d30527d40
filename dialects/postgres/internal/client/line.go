package client

import (
	"context"
	"net"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// sender sends a script, in one round trip where it can, and returns the first column of each
// statement's rows. Undo is a statement that undoes all but the first; empty: there is none.
// Safe is called when the first statement has run; nil: nobody asks.
type sender func(ctx context.Context, s sqltext.Script, undo string, safe func()) ([][]string, error)

// Line runs scripts on one connection, whichever client library it belongs to.
type Line struct {
	send sender
	// direct says that a savepoint travels with what is behind it: the sender tells when it is set,
	// or an interrupt finds out. DirectWork says the same of statements of the caller's: the sender
	// does not have them read in front of it.
	direct, directWork bool

	backend *backend // nil: nobody has to know it

	Blind bool // Fly returns no columns
	// Interrupt ends the statement that is running, from outside the connection.
	Interrupt func(ctx context.Context) error
	// Cut closes the connection under a statement that interrupts do not end; nil: the end of the
	// statement's context does.
	Cut    func()
	Socket net.Conn
	PGX    *pgx.Conn // whose settings are to be read, and nothing else; nil: not known
}

// Run sends a script and returns the first column of each statement's rows. After an error no
// statement behind the failed one has run.
func (l Line) Run(ctx context.Context, s sqltext.Script) ([][]string, error) {
	return l.backend.run(ctx, s, "", l.send)
}

// Fly is Run for a script that begins with WaitSavepoint, in as few round trips as the client
// library can. It calls safe when a cancel can hit nothing in front of the savepoint any more.
func (l Line) Fly(ctx context.Context, s sqltext.Script, safe func()) ([][]string, error) {
	if l.directWork || l.direct && !s.Works() {
		return l.send(ctx, s, UndoWait.SQL, safe)
	}
	columns, err := l.Run(ctx, s[:1])
	if err != nil {
		return columns, err
	}
	safe()
	further, err := l.Run(ctx, s[1:])
	return append(columns, further...), err
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

// unheard is how long nobody interrupts a flight whose savepoint was not confirmed. After that the
// answer is late, and not the savepoint: a pooler may keep it until it has all.
const unheard = time.Second

// BehindSavepoint is l for the flight that begins now. A cancel that came before its savepoint is
// set would cost the transaction, so none is sent before the sender calls safe.
func (l Line) BehindSavepoint() (guarded Line, safe func()) {
	var set atomic.Bool
	sent, guarded := time.Now(), l
	guarded.Interrupt = func(ctx context.Context) error {
		if !set.Load() && time.Since(sent) < unheard {
			return nil
		}
		return l.Interrupt(ctx)
	}
	return guarded, func() { set.Store(true) }
}
