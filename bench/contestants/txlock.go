package contestants

import (
	"context"
	"database/sql"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/bench/contest"
	pools "github.com/txlock/txlock/bench/database"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/servers"
)

// use is a way to use a lock.
type use string

const (
	useLock   use = "Lock"
	useDo     use = "Do"
	useLockTx use = "LockTx"
	useExec   use = "Exec"
	useClaim  use = "Claim"
)

// The uses of a client that owns its connections, and of one on a pool of the program.
var (
	ofOpen  = []use{useLock, useDo, useExec}
	ofPools = []use{useLock, useDo, useLockTx}
)

var remarks = map[use]string{
	useLock:   "Lock and Unlock; the work is in a transaction of its own",
	useDo:     "the work is in the lock's transaction",
	useLockTx: "in a transaction that the caller has begun, with its BEGIN and COMMIT",
	useExec:   "the lock, an UPDATE of one row, and the COMMIT",
}

// client is a way to open the library.
type client struct {
	server contest.Server
	name   string // in names of contestants
	open   opener
	uses   []use
	main   bool // takes part everywhere; the others only where times are compared
}

var clients = []client{
	{contest.PostgreSQL, "postgres.Open", openPostgres, ofOpen, true},
	{contest.PostgreSQL, "postgres.New", openPostgresPool, ofPools, false},
	{contest.PostgreSQL, "postgres.NewSQL", openPostgresSQL, ofPools, false},
	{contest.MySQL, "mysql.Open", openMySQL, ofOpen, true},
	{contest.MySQL, "mysql.New", openMySQLPool, ofPools, false},
	{contest.MariaDB, "mysql.Open on MariaDB", openMySQL, ofOpen, true},
	{contest.MariaDB, "mysql.New on MariaDB", openMySQLPool, ofPools, false},
}

// parts are the measurements in which a use takes part with the clients that take part everywhere.
var parts = map[use]contest.Part{
	useLock: contest.Standard | contest.Growth | contest.Crowd | contest.Holders | contest.Waiters,
	useDo:   contest.Standard | contest.HotRow,
}

func init() {
	for _, client := range clients {
		for _, u := range client.uses {
			c := client.contestant("txlock "+string(u), remarks[u], contest.Turns)
			c.ByHand = twinOf(u, client.name)
			if u != useExec {
				c.Parts |= contest.Times
			}
			if client.main {
				c.Parts |= parts[u]
			}
			client.register(c, form{use: u}, nil)
		}
		if client.main {
			c := client.contestant("txlock Lock", "all callers queue at the server", contest.Crowd)
			c.Name += ", no queue"
			client.register(c, form{use: useLock, options: []txlock.Option{txlock.WithQueue(1_000_000)}}, nil)
			claim := client.contestant("txlock Claim", "takes no connection", contest.Claimers)
			client.register(claim, form{use: useClaim}, nil)
			client.registerSellers()
		}
	}
}

func (c client) contestant(way, remark string, parts contest.Part) contest.Contestant {
	return contest.Contestant{
		Name: way + ", " + c.name, Group: contest.TxLock, Server: c.server, Waits: contest.Queued,
		Remark: remark, Parts: parts,
	}
}

// form is how a client of the library is set up.
type form struct {
	use     use
	options []txlock.Option
}

// opener opens a client of the library.
type opener func(ctx context.Context, env contest.Environment, f form) (contest.Client, error)

// register registers a contestant. The client may be changed when it is open.
func (c client) register(of contest.Contestant, f form, change func(contest.Client) contest.Client) {
	of.Open = func(ctx context.Context, env contest.Environment) (contest.Client, error) {
		opened, err := c.open(ctx, env, f)
		if err == nil && change != nil {
			opened = change(opened)
		}
		return opened, err
	}
	of.Prepare = func(ctx context.Context, env contest.Environment) error {
		opened, err := c.open(ctx, env, f)
		if err != nil {
			return err
		}
		installed := opened.(interface{ install(context.Context) error }).install(ctx)
		if err := errors.Join(installed, opened.Close()); err != nil || f.use != useExec {
			return err
		}
		return createCounter(ctx, c.server, env)
	}
	contest.Register(of)
}

// library is a client of the library.
type library[Tx any] struct {
	locks *txlock.Locker[Tx]
	use   use
	close func() error // closes what the library did not open; may be nil

	transact func(ctx context.Context, do func(Tx) error) error // of the pool, for LockTx
}

func newLibrary[Tx any](driver dialects.Driver[Tx], env contest.Environment, f form, closeToo func() error,
) library[Tx] {
	options := append([]txlock.Option{txlock.WithTable("bench_txlock")}, f.options...)
	if env.Lease > 0 {
		options = append(options, txlock.WithLease(env.Lease))
	}
	return library[Tx]{locks: txlock.New(driver, options...), use: f.use, close: closeToo}
}

// newSQLLibrary is newLibrary for a driver on db.
func newSQLLibrary(driver dialects.Driver[*sql.Tx], db *sql.DB, env contest.Environment, f form) library[*sql.Tx] {
	l := newLibrary(driver, env, f, db.Close)
	l.transact = func(ctx context.Context, do func(*sql.Tx) error) error { return pools.TransactSQL(ctx, db, do) }
	return l
}

func (l library[Tx]) install(ctx context.Context) error { return l.locks.Install(ctx) }

// Hold implements contest.Client. An Exec has an UPDATE instead of the work.
func (l library[Tx]) Hold(ctx context.Context, keys []string, work contest.Work) (err error) {
	mutex := l.locks.Mutex(keys...)
	switch l.use {
	case useDo:
		return mutex.Do(ctx, func(ctx context.Context, tx Tx) error { return work(ctx, tx) })
	case useLockTx:
		return l.transact(ctx, func(tx Tx) error {
			if err := mutex.LockTx(ctx, tx); err != nil {
				return err
			}
			return work(ctx, tx)
		})
	case useExec:
		_, err := mutex.Exec(ctx, txlock.Statement{SQL: count})
		return err
	case useClaim:
		claimed, failed := l.locks.Claim(keys[0]).Take(ctx, "bench", 5*time.Minute)
		if failed != nil {
			return failed
		}
		defer func() { err = errors.Join(err, claimed.Release(context.WithoutCancel(ctx))) }()
		return work(ctx, nil)
	}
	held, err := mutex.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Unlock(ctx)) }()
	return work(held.Context(), nil)
}

// Close implements contest.Client.
func (l library[Tx]) Close() error {
	err := l.locks.Close()
	if l.close != nil {
		err = errors.Join(err, l.close())
	}
	return err
}

func openPostgres(ctx context.Context, env contest.Environment, f form) (contest.Client, error) {
	driver, err := postgres.Open(ctx, servers.WithPool(env.Address, env.Contenders))
	if err != nil {
		return nil, err
	}
	return newLibrary[pgx.Tx](driver, env, f, nil), nil
}

// connections are those of a pool that the program owns. One more than callers looks for the table
// of a LockTx once, and interrupts waits on MySQL.
func connections(env contest.Environment) int { return env.Contenders + 1 }

func openPostgresPool(ctx context.Context, env contest.Environment, f form) (contest.Client, error) {
	pool, err := pools.Pool(ctx, env.Address, connections(env))
	if err != nil {
		return nil, err
	}
	l := newLibrary[pgx.Tx](postgres.New(pool), env, f, func() error {
		pool.Close()
		return nil
	})
	l.transact = func(ctx context.Context, do func(pgx.Tx) error) error { return pgx.BeginFunc(ctx, pool, do) }
	return l, nil
}

func openPostgresSQL(ctx context.Context, env contest.Environment, f form) (contest.Client, error) {
	db, err := pools.SQL(ctx, contest.PostgreSQL, env.Address, connections(env))
	if err != nil {
		return nil, err
	}
	return newSQLLibrary(postgres.NewSQL(db), db, env, f), nil
}

// openMySQL lets the library own its pool, on MySQL or MariaDB.
func openMySQL(ctx context.Context, env contest.Environment, f form) (contest.Client, error) {
	driver, err := mysql.Open(ctx, servers.WithPool(env.Address, env.Contenders))
	if err != nil {
		return nil, err
	}
	return newLibrary[*sql.Tx](driver, env, f, nil), nil
}

func openMySQLPool(ctx context.Context, env contest.Environment, f form) (contest.Client, error) {
	db, err := pools.SQL(ctx, contest.MySQL, env.Address, connections(env))
	if err != nil {
		return nil, err
	}
	return newSQLLibrary(mysql.New(db), db, env, f), nil
}
