// Package postgres holds locks in PostgreSQL, tested on 14 to 18, through jackc/pgx/v5: on a
// pgxpool.Pool ([New], [Open]), or through any driver on a sql.DB ([NewSQL]). While a transaction
// of txlock's lasts, pg_stat_activity shows what its session locks, behind the name of the
// application.
package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/statements"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/installation"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/internal/peer"
)

// Driver holds locks on connections of a pgxpool.Pool, in sessions that speak pgx.Tx. Its methods
// are those of [dialects.Driver].
type Driver = driver[pgx.Tx]

// SQLDriver holds locks on connections of a sql.DB, in sessions that speak *sql.Tx. Its methods are
// those of [dialects.Driver].
type SQLDriver = driver[*sql.Tx]

// New returns a driver on the caller's pool, and sends nothing. The pool stays the caller's: Close
// does not close it. Its query execution mode is respected. Its connections must speak UTF-8, or
// each call is an error. A nil pool is an error from the first call that can return one.
func New(pool *pgxpool.Pool) *Driver {
	if pool == nil {
		return &Driver{}
	}
	return &Driver{pool: client.PGX(pool)}
}

// Open returns a driver with a pool of its own, and reaches the server once. Dsn is a URL or a
// keyword string as pgxpool.ParseConfig takes it, pool_max_conns and the other pool settings
// included. Sessions carry the application name "txlock" unless dsn has another. Close closes the
// pool. After an error nothing is left open.
func Open(ctx context.Context, dsn string) (*Driver, error) {
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("txlock: open PostgreSQL: %w", err)
	}
	params := config.ConnConfig.RuntimeParams
	params["application_name"] = cmp.Or(params["application_name"], "txlock")
	params["client_encoding"] = "UTF8" // else it is that of the database
	params["standard_conforming_strings"] = "on"
	if peer.Sees {
		config.ShouldPing = rarelyPing
	}
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err == nil {
		if err = pool.Ping(ctx); err == nil {
			return &Driver{pool: client.PGX(pool), close: pool.Close}, nil
		}
		pool.Close()
	}
	return nil, fmt.Errorf("txlock: open PostgreSQL: %w", err)
}

// rarelyPing saves the trip by which pgxpool looks at a connection that was idle for a second. The
// kernel sees that one was closed, but not that the network has forgotten it.
var rarelyPing = func(_ context.Context, p pgxpool.ShouldPingParams) bool { return p.IdleDuration > 30*time.Second }

// NewSQL returns a driver on the caller's db, and sends nothing. The db stays the caller's: Close
// does not close it. Its connections must speak UTF-8, or each call is an error. A nil db is an
// error from the first call that can return one.
//
// The db is best one of pgx's stdlib driver: then what the library sends on a connection of its own
// goes together, below a wrapper that shows what it wraps, as otelsql's does. With other drivers,
// and in LockTx, each statement goes by itself. Where a driver shows no socket, only a heartbeat
// notices the loss of a session.
func NewSQL(db *sql.DB) *SQLDriver {
	if db == nil {
		return &SQLDriver{}
	}
	return &SQLDriver{pool: client.SQL(db)}
}

// driver is dialects.Driver for either client library.
type driver[Tx any] struct {
	pool  client.Pool[Tx]
	close func()      // the pool of Open; nil: the caller's
	known atomic.Bool // the servers of the pool exclude, and its sessions, which are all alike, fit
}

// Info implements dialects.Driver. The server's timer counts milliseconds.
func (d *driver[Tx]) Info() dialects.Info {
	info := dialects.Info{System: "postgresql", MinLease: time.Millisecond, Layout: installation.Layout}
	if d == nil || d.pool == nil {
		info.Err = errors.New("nil driver: make one with postgres.New or NewSQL, of a pool that is not nil, or Open")
	} else {
		info.PoolSize = d.pool.Size()
	}
	return info
}

func (d *driver[Tx]) Begin(ctx context.Context, request dialects.Request) (_ dialects.Session[Tx], got dialects.Grant,
	err error,
) {
	var s *session[Tx]
	err = d.repeat(ctx, interrupt.Longest, request, func() error {
		s, got, err = d.begin(ctx, request)
		if errors.Is(err, errUnsent) {
			alone := request
			alone.Work = &dialects.Work{}
			s, got, err = d.begin(ctx, alone)
		}
		return err
	})
	switch {
	case err != nil || s.committed:
		return nil, got, err
	case request.Work.IsExec():
		got.Affected, err = statements.Finish(s, request, got.Affected, s.runAll)
		return nil, got, err
	}
	return s, got, nil
}

// begin gives the connection back where nothing is left to be done in the session. When the client
// library panics, as an argument of the caller's may have it do, the connection is closed, too.
func (d *driver[Tx]) begin(ctx context.Context, request dialects.Request) (s *session[Tx], got dialects.Grant,
	err error,
) {
	conn, err := d.acquire(ctx)
	if err != nil {
		return nil, got, err
	}
	s = &session[Tx]{Conn: conn, driver: d, lease: request.Lease}
	panics := true
	defer func() {
		if panics {
			conn.Destroy()
		}
		if panics || err != nil || s.committed {
			conn.GiveBack()
		}
	}()
	if err = d.identify(ctx, s.Line); err == nil {
		got, err = s.begin(ctx, request)
	}
	panics = false
	return s, got, err
}

// acquire takes a connection that is alive and outside a transaction. The kernel shows that, or an
// answer costs a round trip. A dead one is closed, so none is taken twice, but there may be another
// pool below.
func (d *driver[Tx]) acquire(ctx context.Context) (c client.Conn[Tx], err error) {
	for dead := 0; ; dead++ {
		if c, err = d.pool.Take(ctx); err != nil {
			return c, err
		}
		if c.Socket == nil {
			err = c.Exec(ctx, "select 1") // not every driver has a Ping
		} else if gone, _ := (peer.Conn{Conn: c.Socket}).Look(); gone {
			err = errors.New("connect: the server has ended one connection of the pool after the other")
		}
		if err == nil {
			return c, nil
		}
		c.Destroy()
		c.GiveBack()
		if !server.Broken(err) || ctx.Err() != nil || dead > max(d.pool.Size(), 100) {
			return c, err
		}
	}
}

// repeat asks for a lock again where the wait was long, or the server's run has an epoch now.
// Patience bounds the wait for a connection to number it.
func (d *driver[Tx]) repeat(ctx context.Context, patience time.Duration, request dialects.Request,
	lock func() error,
) (err error) {
	for numbered := 0; err == nil; {
		switch err = lock(); {
		case errors.Is(err, errAgain):
			err = nil
		case errors.Is(err, fencing.ErrNoRun) && numbered < fencing.Tries:
			numbered++
			err = d.numberRun(ctx, patience, request.Fence)
		default:
			return err
		}
	}
	return err
}

// identify refuses a server that is known not to exclude. It asks until one was not refused, and
// then no more. It comes before the first lock, on the connection of that lock.
func (d *driver[Tx]) identify(ctx context.Context, l client.Line) error {
	if d.known.Load() {
		return nil
	}
	columns, err := l.Run(ctx, server.Script{server.Identity})
	if err == nil {
		err = server.Refuse(columns[0])
	}
	d.known.Store(err == nil)
	return err
}

// scriptOf is a query as it is sent. A statement has the arguments that it names.
func scriptOf(q dialects.Query) (s server.Script) {
	args := make([]any, len(q.Args))
	for i, arg := range q.Args {
		args[i] = fmt.Sprint(arg)
		if bytes, is := arg.([]byte); is {
			args[i] = fmt.Sprintf(`\x%x`, bytes)
		}
	}
	for text := range strings.SplitSeq(q.SQL, ";\n") {
		named := len(args)
		for named > 0 && !strings.Contains(text, "$"+strconv.Itoa(named)) {
			named--
		}
		s = append(s, server.Silent(text, args[:named]...))
	}
	s[len(s)-1].Silent = false
	return s
}

func (d *driver[Tx]) Run(ctx context.Context, q dialects.Query, in ...Tx) ([]string, error) {
	if len(in) == 0 {
		return d.runAlone(ctx, interrupt.Longest, true, q)
	}
	l, err := d.in(ctx, in[0])
	if err != nil {
		return nil, err
	}
	clean, cancel := interrupt.Detached(ctx) // pgx closes the connection when ctx ends
	defer cancel()
	script := append(append(server.Script{set(inCallers)}, scriptOf(q)...), release(inCallers))
	columns, err := l.Run(clean, script)
	if err != nil {
		own := dialects.Request{Table: q.Table, Ours: true}
		return nil, undo(clean, l, inCallers, own, err, len(columns), server.Ours(err, q.Table))
	}
	return columns[len(columns)-2], nil
}

// runAlone runs a query in a transaction of its own. Patience bounds the wait for a connection.
// When ctx ends, the statement is interrupted where it may be, or else the connection is closed.
func (d *driver[Tx]) runAlone(ctx context.Context, patience time.Duration, interruptible bool, q dialects.Query) (
	[]string, error,
) {
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := d.acquire(wait)
	if err != nil {
		return nil, err
	}
	defer conn.GiveBack()
	if err = d.identify(ctx, conn.Line); err != nil {
		return nil, err
	}
	stop := conn.Interrupt
	if !interruptible {
		stop = func(context.Context) error { return interrupt.ErrNoConnection }
	}
	// Where statements travel one by one, this process may be stopped in between.
	leased := server.Statement{SQL: "select " + leaseSQL("$1"), Args: []any{milliseconds(interrupt.CleanUp)}}
	script := slices.Concat(server.Script{client.Begin, leased}, scriptOf(q), server.Script{client.Commit})
	var columns [][]string
	err = interrupt.Await(ctx, false, interrupt.Patience, stop, conn.Cut, func(ctx context.Context) (err error) {
		columns, err = conn.Line.Run(ctx, script)
		return err
	})
	if err == nil {
		return columns[len(columns)-2], nil
	}
	// Where that fails, the connection is closed: pgxpool does it at once, database/sql when the
	// connection is taken again.
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	if status := conn.Status(); status != client.Idle && status != client.Closed {
		_ = conn.Line.Exec(clean, "rollback")
	}
	return nil, explain(clean, conn.Line, dialects.Request{}, server.Ours(err, q.Table))
}

func (d *driver[Tx]) Classify(err error) dialects.Outcome { return server.Outcome(err) }

// Close closes the pool of Open, and waits for its connections to come back.
func (d *driver[Tx]) Close() error {
	if d != nil && d.close != nil {
		d.close()
	}
	return nil
}
