package contestants

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/bench/contest"
	pools "github.com/txlock/txlock/bench/database"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
)

func init() {
	for _, s := range []struct {
		server contest.Server
		client string // its name in names of contestants
		open   opener
		uses   []use
	}{
		{contest.PostgreSQL, "pgx", openPgx, []use{useLock, useDo, useRows}},
		{contest.PostgreSQL, "database/sql on PostgreSQL", openPostgresSQL, []use{useLock, useDo}},
		{contest.MySQL, "MySQL", openMySQLOwned, []use{useLock, useDo, useRows}},
		{contest.MySQL, "mysql.New", openMySQLPool, []use{useLock, useDo}},
		{contest.MariaDB, "MariaDB", openMySQLOwned, []use{useLock, useDo, useRows}},
	} {
		for _, u := range s.uses {
			c := contest.Contestant{
				Name: fmt.Sprintf("txlock %s, %s", u, s.client), Group: contest.TxLock, Server: s.server,
				Waits:  contest.Queued,
				Remark: remarks[u], Leased: true, Floor: floorName(u, s.client),
				Slots: dialects.DefaultSlots, ManyKeys: u == useLock && s.client != "mysql.New",
			}
			if u == useRows {
				c.Slots = 0
			}
			if !hasFloor(c.Floor) {
				c.Floor = ""
			}
			s.open.register(c, u)
			if c.ManyKeys {
				for _, slots := range []int{1, 100} {
					few := c
					few.Name, few.Slots, few.SpecialSlots = fmt.Sprintf("%s, slots: %d", c.Name, slots), slots, true
					s.open.register(few, u)
				}
			}
		}
	}
}

// use is a way to use the library.
type use string

const (
	useLock use = "Lock"
	useDo   use = "Do"
	useRows use = "Rows"
)

var remarks = map[use]string{
	useLock: "Lock and Unlock; the work is in a transaction of its own",
	useDo:   "the work is in the lock's transaction",
	useRows: "Do over Rows: the lock is a row of the user's own table",
}

// opener opens a client of the library with a lock table.
type opener func(ctx context.Context, env contest.Environment, slots int, u use) (contest.Client, error)

func (open opener) register(c contest.Contestant, u use) {
	slots := c.Slots
	if u == useRows {
		slots = dialects.DefaultSlots // not used
	}
	c.Open = func(ctx context.Context, env contest.Environment) (contest.Client, error) {
		return open(ctx, env, slots, u)
	}
	c.Prepare = func(ctx context.Context, env contest.Environment, keys []string) error {
		client, err := c.Open(ctx, env)
		if err != nil {
			return err
		}
		installed := client.(interface{ install(context.Context) error }).install(ctx)
		if err := errors.Join(installed, client.Close()); err != nil || u != useRows {
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
	close func() error // closes what the library did not open; may be nil
}

func newLibrary[Tx any](driver dialects.Driver[Tx], env contest.Environment, slots int, u use,
	closeToo func() error,
) library[Tx] {
	locks := txlock.New(driver, txlock.WithTable("bench_txlock_"+strconv.Itoa(slots)), txlock.WithSlots(slots),
		txlock.WithLease(env.Lease))
	return library[Tx]{locks, u, closeToo}
}

func (l library[Tx]) install(ctx context.Context) error { return l.locks.Install(ctx) }

// Hold implements contest.Client.
func (l library[Tx]) Hold(ctx context.Context, keys []string, work contest.Work) (err error) {
	inside := func(ctx context.Context, tx Tx) error { return work(ctx, tx) }
	switch l.use {
	case useDo:
		return l.locks.Mutex(keys...).Do(ctx, inside)
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

// Close implements contest.Client.
func (l library[Tx]) Close() error {
	err := l.locks.Close()
	if l.close != nil {
		err = errors.Join(err, l.close())
	}
	return err
}

func openPgx(ctx context.Context, env contest.Environment, slots int, u use) (contest.Client, error) {
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
	return newLibrary[pgx.Tx](driver, env, slots, u, nil), nil
}

func openPostgresSQL(ctx context.Context, env contest.Environment, slots int, u use) (contest.Client, error) {
	db, err := pools.SQL(ctx, contest.PostgreSQL, env.Address(), env.Contenders)
	if err != nil {
		return nil, err
	}
	return newLibrary[*sql.Tx](postgres.NewSQL(db), env, slots, u, db.Close), nil
}

// openMySQLOwned lets the library own its pool, on MySQL or MariaDB.
func openMySQLOwned(ctx context.Context, env contest.Environment, slots int, u use) (contest.Client, error) {
	driver, err := mysql.Open(ctx, env.Address())
	if err != nil {
		return nil, err
	}
	return newLibrary[*sql.Tx](driver, env, slots, u, nil), nil
}

func openMySQLPool(ctx context.Context, env contest.Environment, slots int, u use) (contest.Client, error) {
	// One more connection, to interrupt a wait.
	db, err := pools.SQL(ctx, contest.MySQL, env.Address(), env.Contenders+1)
	if err != nil {
		return nil, err
	}
	return newLibrary[*sql.Tx](mysql.New(db), env, slots, u, db.Close), nil
}
