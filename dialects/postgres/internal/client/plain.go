package client

import (
	"context"
	"crypto/rand"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/wrapped"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/identifier"
)

// plainConn is the channel of a connection of any driver for PostgreSQL. Of the driver it asks
// nothing but what database/sql does: statements, and what came of them. So it does not know the
// session's state, which is Open until an error says otherwise.
type plainConn struct {
	conn  sqldriver.Conn // below all wrappers
	db    *sql.DB        // has that connection alone
	own   *sql.Conn
	alone func(work func() error) error

	socket net.Conn        // nil: not known
	life   context.Context // without a socket: ends when the connection is to be cut
	end    func()

	several bool // statements in one query
	// tag begins each query of several statements, so that another session finds this one by what
	// it runs. Otherwise backend is asked for in each transaction: behind a pooler it changes.
	tag     string
	backend *backend // nil: tag serves

	broken bool
	over   bool // the server has ended the transaction
}

func newPlainConn(conn sqldriver.Conn, alone func(work func() error) error) (l *plainConn, err error) {
	l = &plainConn{
		conn: conn, db: sql.OpenDB(single{wrapped.Statements{Conn: conn}}), alone: alone,
		socket: wrapped.Socket(conn), backend: &backend{},
	}
	if l.socket == nil {
		l.life, l.end = context.WithCancel(context.Background())
	}
	l.own, err = l.db.Conn(context.Background())
	return l, err
}

// close closes what presents the connection, which lives on. Own is left alone: behind a panic of a
// driver, its Close would wait for the end of the query for ever.
func (l *plainConn) close() {
	_ = l.db.Close()
	if l.end != nil {
		l.end()
	}
}

// lineTo runs scripts on a connection that was just taken from its pool. Where no socket tells
// whether it died while it was idle, the server is asked.
func (l *plainConn) lineTo(ctx context.Context, p *sqlPool) (Line, error) {
	line := Line{Socket: l.socket, send: l.send}
	if l.socket == nil {
		line.Socket = cuttable{cut: func() { l.cut(p) }}
		if err := l.Exec(ctx, sqltext.Ping); err != nil {
			return line, err
		}
	}
	line.Cut = func() { _ = line.Socket.Close() }
	several := p.several.Load()
	if several == nil {
		can, err := l.takesSeveral(ctx)
		if err != nil {
			return line, err
		}
		several = &can
		p.several.Store(several)
	}
	l.several = *several
	if l.several && l.socket != nil {
		l.tag, l.backend = newTag(), nil
		line.Interrupt = interruptTagged(l.tag, p)
	} else {
		line.backend = l.backend
		line.Interrupt = l.backend.canceler(nil, p)
	}
	return line, nil
}

// newTag is for a query of several statements. A wrapper may put a comment of its own in front.
func newTag() string { return sqltext.Tag + rand.Text() + " */ " }

// interruptTagged cancels a tagged query while it waits for a lock, and so not in front of the
// savepoint that it sets.
func interruptTagged(tag string, p *sqlPool) func(context.Context) error {
	return func(ctx context.Context) error {
		return p.ask(ctx, nil, sqltext.With("select pg_cancel_backend(pid) from pg_stat_activity where "+
			"state = 'active' and wait_event_type = 'Lock' and strpos(query, $1) > 0 and pid <> pg_backend_pid()", tag))
	}
}

// cuttable stands for a socket that is not known. It can be closed, which ends the statements of
// the session, and the session.
type cuttable struct {
	net.Conn
	cut func()
}

// Close implements net.Conn.
func (c cuttable) Close() error {
	c.cut()
	return nil
}

func (l *plainConn) cut(p *sqlPool) {
	l.end()
	go func() {
		ctx, cancel := interrupt.Detached(context.Background())
		defer cancel()
		_ = l.backend.tell(ctx, terminateSQL, nil, p)
	}()
}

// dawdling is how long a statement may go on when its context has ended. Some drivers then ask the
// server to interrupt it, and wait for the answer on a network that may be silent.
const dawdling = 200 * time.Millisecond

// hold runs work while nobody else uses the connection. It cuts the connection when work goes on
// after the end of ctx.
func (l *plainConn) hold(ctx context.Context, work func(context.Context) error) error {
	if l.socket == nil {
		ctx = l.within(ctx)
	} else if ctx.Done() != nil {
		done := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			select {
			case <-done:
			case <-time.After(dawdling):
				_ = l.socket.Close()
			}
		})
		defer stop()
		defer close(done)
	}
	return l.alone(func() error { return work(ctx) })
}

// within is ctx, which ends with the connection at the latest.
func (l *plainConn) within(ctx context.Context) context.Context {
	if l.life == nil {
		return ctx
	}
	within, cancel := context.WithCancel(ctx)
	context.AfterFunc(l.life, cancel) // rows live longer than the call: only then nobody needs it
	return within
}

// takesSeveral tells whether the driver takes several statements in one query, and shows the rows
// of each. One that prepares every query gets an error of the server, once for each pool.
func (l *plainConn) takesSeveral(ctx context.Context) (can bool, err error) {
	err = l.hold(ctx, func(ctx context.Context) error {
		columns, err := firstColumnsOf(l.own.QueryContext(ctx, "select 1; select 2"))
		if err == nil || server.State(err) != "" {
			can = err == nil && len(columns) == 2
			return nil
		}
		return err
	})
	return can, err
}

// Carries implements channel.
func (l *plainConn) Carries() bool { return false }

func (l *plainConn) begin(ctx context.Context, _ string, s sqltext.Script) ([][]string, error) {
	columns, err := l.backend.run(ctx, append(sqltext.Script{Begin}, s...), l.send)
	return columns[min(1, len(columns)):], err
}

func (l *plainConn) commit(ctx context.Context, mark string, behind ...sqltext.Statement) ([][]string, error) {
	columns, err := l.send(ctx, ending(mark, behind))
	l.over = err != nil && len(columns) > len(behind) // it is the COMMIT that failed
	return columns, err
}

func (l *plainConn) send(ctx context.Context, s sqltext.Script) (columns [][]string, err error) {
	err = l.hold(ctx, func(ctx context.Context) error {
		if l.several {
			columns, err = l.together(ctx, s)
		} else {
			columns, err = l.oneByOne(ctx, s)
		}
		return err
	})
	l.note(err)
	return columns, err
}

func (l *plainConn) together(ctx context.Context, s sqltext.Script) (columns [][]string, err error) {
	text, err := s.Text()
	if err != nil {
		return nil, err
	}
	results, err := firstColumnsOf(l.own.QueryContext(ctx, l.tag+text))
	for _, statement := range s {
		switch {
		case statement.Silent:
			columns = append(columns, nil)
		case len(results) > 0:
			columns, results = append(columns, results[0]), results[1:]
		case err != nil:
			return columns, err
		default:
			return columns, fmt.Errorf("bug: no rows of %s", statement.SQL)
		}
	}
	if len(results) > 0 {
		return columns, fmt.Errorf("bug: rows of a silent statement in %s", text)
	}
	return columns, err
}

func (l *plainConn) oneByOne(ctx context.Context, s sqltext.Script) (columns [][]string, err error) {
	for _, statement := range s {
		results, err := firstColumnsOf(l.own.QueryContext(ctx, statement.Sent(), statement.Values()...))
		if err != nil {
			return columns, err
		}
		columns = append(columns, nil)
		if len(results) > 0 {
			columns[len(columns)-1] = results[0]
		}
	}
	return columns, nil
}

func (l *plainConn) Exec(ctx context.Context, statements string) error {
	statements = identifier.Qualified(statements)
	err := l.hold(ctx, func(ctx context.Context) error {
		_, err := l.own.ExecContext(ctx, statements)
		return err
	})
	l.note(err)
	return err
}

func (l *plainConn) commitAlone(ctx context.Context) error {
	// The savepoint fails in an aborted transaction. COMMIT alone would roll that back without an
	// error, and database/sql does not show the answer.
	err := l.Exec(ctx, "savepoint txlock_commit; commit")
	if server.State(err) == server.AbortedBefore {
		err = errors.Join(pgx.ErrTxCommitRollback, l.Exec(ctx, "rollback"))
	}
	return err
}

func (l *plainConn) note(err error) {
	l.broken = l.broken || server.Broken(err)
}

func (l *plainConn) Status() Status {
	switch {
	case l.broken:
		return Closed
	case l.over:
		return Idle
	}
	return Open
}

// Shown reads what lib/pq keeps of the server's last answer.
func (l *plainConn) Shown() Status {
	if letter := wrapped.Letter(l.conn, "txnStatus"); letter != 0 && !l.broken {
		return Status(letter)
	}
	return l.Status()
}

// AskSQL fails outside a transaction, and in one that is aborted. It has no snapshot.
const AskSQL = "savepoint txlock_ask; release savepoint txlock_ask"

func (l *plainConn) Ask(ctx context.Context) Status {
	if status := l.Status(); status != Open {
		return status
	}
	err := l.Exec(ctx, AskSQL)
	switch server.State(err) {
	case server.AbortedBefore:
		return Failed
	case server.NoTransaction:
		return Idle
	}
	return l.Status()
}

// Busy is false: database/sql closes the rows that work has left open, before the COMMIT.
func (l *plainConn) Busy() bool { return false }
