package postgres

import (
	"context"
	"net"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// pool is where a client library keeps its connections.
type pool[Tx any] interface {
	ready() error
	size() int // 0: without a limit
	// acquire takes a connection that is alive and outside a transaction.
	acquire(ctx context.Context) (pooledConn[Tx], querier, error)
	// querierIn runs scripts in a transaction of the caller's.
	querierIn(ctx context.Context, tx Tx, request dialects.Request) (querier, error)
	// alone asks the server when the pool has no connection to give. It makes one, as the pool
	// would make another like known.
	alone(ctx context.Context, known *pgx.Conn, ask sqltext.Statement) ([]string, error)
	close()
}

// pooledConn is a connection of a pool with at most one transaction, as a client library presents
// both.
type pooledConn[Tx any] interface {
	link
	// lasting is nil on a connection of a caller's pool, whose settings are not the library's.
	lasting() *lasting
	// begin begins a transaction and runs s in it. Mark is what commit will ask for, and empty in a
	// session without work. After an error the transaction may be open, or not: rollback ends it.
	begin(ctx context.Context, mark string, s sqltext.Script) ([][]string, error)
	tx() Tx
	// savepoint sets a savepoint, and presents what follows as a transaction. Release releases it.
	// With outer it is set, inside another one of that name, which release releases with it.
	savepoint(ctx context.Context, name, outer string) (nested Tx, release func(context.Context) error, err error)
	// commit commits only the transaction that holds mark. Settled is the session's. An error that
	// matches dialects.ErrLost means that nothing is committed.
	commit(ctx context.Context, mark string, settled bool) error
	// rollback ends the library's transaction, if there is one.
	rollback(ctx context.Context) error
	// destroy closes the connection. It has to be given back all the same.
	destroy(ctx context.Context)
	giveBack()
}

// querier runs scripts on one connection, whichever client library it belongs to.
type querier struct {
	// run sends a script and returns the first column of each statement's rows. After an error no
	// statement behind the failed one has run.
	run func(ctx context.Context, s sqltext.Script) ([][]string, error)
	// flight is the same for a script that begins with a savepoint.
	flight flight
	blind  bool // flight returns no columns
	// interrupt ends the statement that is running, from outside the connection.
	interrupt func(ctx context.Context) error
	// cut closes the connection under a statement that interrupts do not end; nil: the end of the
	// statement's context does.
	cut    func()
	socket net.Conn
	conn   *pgx.Conn // whose settings are to be read, and nothing else; nil: not known
	waits  *waits    // of the driver
}

// flight sends a script that begins with a savepoint, in as few round trips as the client library
// can. It calls safe when a cancel can hit nothing in front of the savepoint any more.
type flight func(ctx context.Context, s sqltext.Script, safe func()) ([][]string, error)

// link is how the own statements of the library travel on a connection. Nobody else uses it then.
type link interface {
	// run sends a script and returns the first column of each statement's rows. After an error no
	// statement behind the failed one has run.
	run(ctx context.Context, s sqltext.Script) ([][]string, error)
	// exec runs statements without arguments, in one simple query.
	exec(ctx context.Context, statements string) error
	// commitAlone commits whatever transaction is open, as work may do itself. It is an error when
	// the server rolls that back instead.
	commitAlone(ctx context.Context) error
	// status is the state of the session, as far as it is known without asking the server.
	status() byte
	// shown is the state of the session as the server's last answer has shown it; open: the client
	// library does not tell. Nobody else uses the connection then.
	shown() byte
	// ask is status, from the server where it is not known.
	ask(ctx context.Context) byte
	// busy tells whether the connection has rows that were not read.
	busy() bool
	// told is the number of the server's process, as it was told at the login; empty: it was not. A
	// pooler in between tells another.
	told() string
}

// The states of a session, as the server reports them.
const (
	closed = 0 // the connection is
	idle   = 'I'
	failed = 'E' // the transaction is aborted
)

// pgxLink is the link of a pgx connection. Use runs work on it.
type pgxLink struct {
	use     func(work func(*pgx.Conn) error) error
	past    bool     // see sendsPast
	backend *backend // nil: cancel requests interrupt
}

// querier runs scripts on a connection that was just taken from its pool. The socket tells whether
// it died while it was idle: after a restart of the server, say.
func (l pgxLink) querier(pool elsewhere) (q querier, err error) {
	err = l.use(func(conn *pgx.Conn) error {
		q.socket = conn.PgConn().Conn()
		q.interrupt = l.backend.interruptOf(conn, pool)
		q.conn = conn
		q.cut = func() { _ = conn.PgConn().Conn().Close() }
		return nil
	})
	q.run, q.flight = l.run, inTwo(l.run)
	if l.past && l.backend == nil {
		q.flight = func(ctx context.Context, s sqltext.Script, safe func()) (columns [][]string, err error) {
			err = l.use(func(conn *pgx.Conn) (err error) {
				columns, err = sendUnnamed(ctx, conn.PgConn(), s, safe)
				return err
			})
			return columns, err
		}
	}
	return q, err
}

func (l pgxLink) run(ctx context.Context, s sqltext.Script) ([][]string, error) {
	return l.backend.run(ctx, s, l.send)
}

func (l pgxLink) send(ctx context.Context, s sqltext.Script) (columns [][]string, err error) {
	err = l.use(func(conn *pgx.Conn) (err error) {
		if l.past {
			columns, err = sendUnnamed(ctx, conn.PgConn(), s, nil)
		} else {
			columns, _, err = send(ctx, conn, nil, s)
		}
		return err
	})
	return columns, err
}

func (l pgxLink) exec(ctx context.Context, statements string) error {
	return l.use(func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, statements)
		return err
	})
}

func (l pgxLink) commitAlone(ctx context.Context) error {
	return l.use(func(conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, "commit")
		if err == nil && tag.String() == "ROLLBACK" {
			err = pgx.ErrTxCommitRollback
		}
		return err
	})
}

func (l pgxLink) ask(context.Context) byte { return l.status() }

func (l pgxLink) shown() byte { return l.status() }

func (l pgxLink) status() (status byte) {
	_ = l.use(func(conn *pgx.Conn) error {
		if !conn.IsClosed() {
			status = conn.PgConn().TxStatus()
		}
		return nil
	})
	return status
}

func (l pgxLink) busy() (busy bool) {
	_ = l.use(func(conn *pgx.Conn) error {
		busy = conn.PgConn().IsBusy()
		return nil
	})
	return busy
}

func (l pgxLink) told() (pid string) {
	_ = l.use(func(conn *pgx.Conn) error {
		if number := conn.PgConn().PID(); number != 0 {
			pid = strconv.FormatUint(uint64(number), 10)
		}
		return nil
	})
	return pid
}

// sender is a pgx connection, or a transaction on one, which refuses to send once it has ended.
type sender interface {
	SendBatch(ctx context.Context, batch *pgx.Batch) pgx.BatchResults
}

// send runs a script as a batch of pgx's, which is one round trip, and a second one where pgx
// prepares statements, or asks what they are. With begin, the transaction that the batch begins is
// returned, also after an error.
func send(ctx context.Context, to sender, begin *pgx.TxOptions, s sqltext.Script) ([][]string, pgx.Tx, error) {
	batch := pgx.Batch{QueuedQueries: make([]*pgx.QueuedQuery, 0, 1+len(s))}
	if begin != nil {
		batch.BeginTx(*begin)
	}
	for _, statement := range s {
		batch.Queue(statement.SQL, statement.Values()...)
	}
	results := to.SendBatch(ctx, &batch)
	var err error
	if begin != nil {
		_, err = results.Exec()
	}
	var columns [][]string
	if err == nil {
		columns, err = firstColumns(results, len(s))
	}
	if closed := results.Close(); err == nil {
		err = closed
	}
	return columns, results.Tx(), err
}

func firstColumns(results pgx.BatchResults, statements int) ([][]string, error) {
	columns := make([][]string, 0, statements)
	for range statements {
		rows, err := results.Query()
		if err != nil {
			return columns, err
		}
		var column []string
		for rows.Next() {
			if raw := rows.RawValues(); len(raw) > 0 {
				column = append(column, string(raw[0]))
			}
		}
		if err := rows.Err(); err != nil {
			return columns, err
		}
		columns = append(columns, column)
	}
	return columns, nil
}
