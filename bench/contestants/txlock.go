package contestants

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
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

// clients are the ways to open the library, and the floor that each is compared with. Those that
// are not standard take part only where times are compared.
var clients = []struct {
	server   contest.Server
	name     string // in names of contestants
	open     opener
	uses     []use
	floor    string
	standard bool
}{
	{contest.PostgreSQL, "pgx", openPgx, []use{useLock, useDo, useRows}, "pgx", true},
	{contest.PostgreSQL, "postgres.New", openPgxPool, []use{useLock, useDo, useLockTx}, "pgx", false},
	{
		contest.PostgreSQL, "database/sql on PostgreSQL", openPostgresSQL,
		[]use{useLock, useDo, useLockTx},
		"database/sql on PostgreSQL", true,
	},
	{contest.MySQL, "MySQL", openMySQLOwned, []use{useLock, useDo, useRows}, "MySQL", true},
	{contest.MySQL, "mysql.New", openMySQLPool, []use{useLock, useDo, useLockTx}, "mysql.New", true},
	{contest.MariaDB, "MariaDB", openMySQLOwned, []use{useLock, useDo, useRows}, "MariaDB", true},
	{
		contest.MariaDB, "mysql.New on MariaDB", openMySQLPool,
		[]use{useLock, useDo, useLockTx},
		"mysql.New on MariaDB", false,
	},
}

func init() {
	for _, client := range clients {
		for _, u := range client.uses {
			c := contest.Contestant{
				Name: txlockName(u, client.name), Group: contest.TxLock, Server: client.server,
				Waits: contest.Queued, Remark: remarks[u], Leased: true, Slots: dialects.DefaultSlots,
				Floor: floorOf(u, client.floor), Bare: bareOf(u, client.floor),
				Parts: contest.Times,
			}
			if client.standard {
				c.Parts = contest.Standard
			}
			switch u {
			case useLock:
				c.Parts |= contest.HandOff | contest.Crowd
				if client.standard && client.name != "mysql.New" {
					c.Parts |= contest.ManyKeys
				}
				client.open.registerFewSlots(c)
				client.open.registerQueues(c, client.name)
			case useDo:
				if client.standard {
					c.Parts |= contest.HotRow
				}
			case useLockTx:
				c.Parts, c.Floor, c.Bare = contest.Times, "", ""
			case useRows:
				c.Slots = 0
				client.open.registerCombine(c, client.name)
				client.open.registerExec(c, client.name)
				client.open.registerClaim(c, client.name)
			}
			client.open.register(c, form{slots: dialects.DefaultSlots, use: u})
		}
	}
}

func txlockName(u use, client string) string { return fmt.Sprintf("txlock %s, %s", u, client) }

// registerFewSlots registers a contestant with fewer slots, in the measurement of many keys alone.
func (open opener) registerFewSlots(c contest.Contestant) {
	if !c.In(contest.ManyKeys) {
		return
	}
	name := c.Name
	for _, slots := range []int{1, 100} {
		c.Name, c.Slots, c.Parts = fmt.Sprintf("%s, slots: %d", name, slots), slots, contest.ManyKeys
		open.register(c, form{slots: slots, use: useLock})
	}
}

// registerClaim registers a claim, where something breaks: it is not made for short work.
func (open opener) registerClaim(c contest.Contestant, client string) {
	c.Name, c.Remark, c.Waits = txlockName(useClaim, client), remarks[useClaim], contest.Polling
	c.Slots, c.Parts, c.Floor, c.Bare = dialects.DefaultSlots, contest.Faults, "", ""
	open.register(c, form{slots: dialects.DefaultSlots, use: useClaim})
}

// use is a way to use the library.
type use string

const (
	useLock use = "Lock"
	useDo   use = "Do"
	useRows use = "Rows"

	useLockTx use = "LockTx"
	useClaim  use = "Claim"
)

var remarks = map[use]string{
	useLock: "Lock and Unlock; the work is in a transaction of its own",
	useDo:   "the work is in the lock's transaction",
	useRows: "Do over Rows: the lock is a row of the user's own table",

	useLockTx: "the lock in a transaction that the work has begun, in three round trips with it",

	useClaim: "a claim that ends with the lease, and Do under it; who waits looks once a second",
}

// form is how a client of the library is set up.
type form struct {
	slots   int
	use     use
	options []txlock.Option
}

// opener opens a client of the library.
type opener func(ctx context.Context, env contest.Environment, f form) (contest.Client, error)

func (open opener) register(c contest.Contestant, f form) {
	c.Open = func(ctx context.Context, env contest.Environment) (contest.Client, error) {
		return open(ctx, env, f)
	}
	c.Prepare = func(ctx context.Context, env contest.Environment, keys []string) error {
		client, err := c.Open(ctx, env)
		if err != nil {
			return err
		}
		installed := client.(interface{ install(context.Context) error }).install(ctx)
		if err := errors.Join(installed, client.Close()); err != nil || f.use != useRows {
			return err
		}
		return seedRows(ctx, c.Server, env, keys)
	}
	contest.Register(c)
}

// library is a client of the library.
type library[Tx any] struct {
	locks *txlock.Locker[Tx]
	use   use
	lease time.Duration
	close func() error // closes what the library did not open; may be nil

	transact func(ctx context.Context, do func(Tx) error) error // of the pool, for LockTx
}

func newLibrary[Tx any](driver dialects.Driver[Tx], env contest.Environment, f form, closeToo func() error,
) library[Tx] {
	options := append([]txlock.Option{
		txlock.WithTable("bench_txlock_" + strconv.Itoa(f.slots)), txlock.WithSlots(f.slots),
		txlock.WithLease(env.Lease),
	}, f.options...)
	return library[Tx]{
		locks: txlock.New(driver, options...), use: f.use, lease: max(env.Lease, time.Second), close: closeToo,
	}
}

// newSQLLibrary is newLibrary for a driver on db.
func newSQLLibrary(driver dialects.Driver[*sql.Tx], db *sql.DB, env contest.Environment, f form) library[*sql.Tx] {
	l := newLibrary(driver, env, f, db.Close)
	l.transact = func(ctx context.Context, do func(*sql.Tx) error) error { return transactSQL(ctx, db, do) }
	return l
}

func (l library[Tx]) install(ctx context.Context) error { return l.locks.Install(ctx) }

// Hold implements contest.Client.
func (l library[Tx]) Hold(ctx context.Context, keys []string, work contest.Work) (err error) {
	inside := func(ctx context.Context, tx Tx) error { return work(ctx, tx) }
	switch l.use {
	case useDo:
		return l.locks.Mutex(keys...).Do(ctx, inside)
	case useLockTx:
		return l.transact(ctx, func(tx Tx) error {
			if err := l.locks.Mutex(keys...).LockTx(ctx, tx); err != nil {
				return err
			}
			return work(ctx, tx)
		})
	case useClaim:
		return l.underClaims(ctx, slices.Sorted(slices.Values(keys)), inside)
	case useRows:
		values := make([]any, len(keys))
		for i, key := range keys {
			values[i] = key
		}
		return l.locks.Rows(rowsTable, rowsColumn, values...).Do(ctx, inside)
	}
	held, err := l.locks.Mutex(keys...).Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, held.Unlock(ctx)) }()
	return work(held.Context(), nil)
}

// underClaims takes the claims one after the other, and works in a Do of each.
func (l library[Tx]) underClaims(ctx context.Context, keys []string, work func(context.Context, Tx) error) error {
	if len(keys) == 0 {
		var none Tx
		return work(ctx, none)
	}
	held, err := l.locks.Claim(keys[0]).Take(ctx, rand.Text(), l.lease)
	if err != nil {
		return err
	}
	err = l.underClaims(ctx, keys[1:], func(ctx context.Context, _ Tx) error { return held.Do(ctx, work) })
	return errors.Join(err, held.Release(ctx))
}

// Close implements contest.Client.
func (l library[Tx]) Close() error {
	err := l.locks.Close()
	if l.close != nil {
		err = errors.Join(err, l.close())
	}
	return err
}

func openPgx(ctx context.Context, env contest.Environment, f form) (contest.Client, error) {
	address, err := url.Parse(env.Address())
	if err != nil {
		return nil, err
	}
	settings := address.Query()
	settings.Set("pool_max_conns", strconv.Itoa(env.Contenders))
	settings.Set("pool_min_conns", strconv.Itoa(env.Contenders))
	address.RawQuery = settings.Encode()
	driver, err := postgres.Open(ctx, address.String())
	if err != nil {
		return nil, err
	}
	return newLibrary[pgx.Tx](driver, env, f, nil), nil
}

// withRoom is env with a connection more where the work has one: LockTx looks for its table once.
func withRoom(env contest.Environment, f form) contest.Environment {
	if f.use == useLockTx {
		env.Contenders++
	}
	return env
}

func openPgxPool(ctx context.Context, env contest.Environment, f form) (contest.Client, error) {
	env = withRoom(env, f)
	pool, err := pools.Pool(ctx, env.Address(), env.Contenders)
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
	env = withRoom(env, f)
	db, err := pools.SQL(ctx, contest.PostgreSQL, env.Address(), env.Contenders)
	if err != nil {
		return nil, err
	}
	return newSQLLibrary(postgres.NewSQL(db), db, env, f), nil
}

// openMySQLOwned lets the library own its pool, on MySQL or MariaDB.
func openMySQLOwned(ctx context.Context, env contest.Environment, f form) (contest.Client, error) {
	driver, err := mysql.Open(ctx, servers.WithPool(env.Address(), env.Contenders))
	if err != nil {
		return nil, err
	}
	return newLibrary[*sql.Tx](driver, env, f, nil), nil
}

func openMySQLPool(ctx context.Context, env contest.Environment, f form) (contest.Client, error) {
	// One more connection, to interrupt a wait.
	db, err := pools.SQL(ctx, contest.MySQL, env.Address(), env.Contenders+1)
	if err != nil {
		return nil, err
	}
	return newSQLLibrary(mysql.New(db), db, env, f), nil
}
