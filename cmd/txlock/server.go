package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/dsn"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/locktable"
)

// locker is the part of a txlock.Locker that the commands use. It hides the type of transactions.
type locker interface {
	Install(ctx context.Context) error
	Inspect(ctx context.Context, keys ...string) ([]txlock.Holding, error)
	Break(ctx context.Context, holding txlock.Holding) error
	Sweep(ctx context.Context, age time.Duration) (deleted int64, err error)
	Close() error
	// lock waits for what is wanted, for at most within; 0 means no limit. With try it does not
	// wait at all.
	lock(ctx context.Context, wanted wanted, within time.Duration, try bool) (*txlock.Lock, error)
	once(key string, per time.Duration) once
	// take takes the claim on a key for d, as lock takes a lock.
	take(ctx context.Context, key, by string, d, within time.Duration, try bool) (claimed, error)
	claimed(text string) (claimed, error)
	// slots is how many slots the lock table has.
	slots(ctx context.Context) (int, error)
}

// wanted is what is to be locked.
type wanted struct {
	keys    []string
	permits int // of the semaphore that the only key names; 0: it names a lock
}

// lockerOf is the Locker of a database whose transactions are Tx.
type lockerOf[Tx any] struct {
	*txlock.Locker[Tx]
	driver dialects.Driver[Tx]
	table  string
}

func (l lockerOf[Tx]) slots(ctx context.Context) (int, error) {
	found, err := locktable.Find(ctx, l.driver, l.table)
	return found.Slots, err
}

func (l lockerOf[Tx]) lock(ctx context.Context, wanted wanted, within time.Duration, try bool) (*txlock.Lock, error) {
	m := l.Mutex(wanted.keys...)
	if wanted.permits > 0 {
		m = l.Semaphore(wanted.keys[0], wanted.permits)
	}
	if try {
		return m.TryLock(ctx)
	}
	if within > 0 {
		m = m.Within(within)
	}
	return m.Lock(ctx)
}

// leave closes a Locker that holds no lock. It does not wait for a silent server: the connections
// end with the process.
func leave(locks locker) {
	briefly(func() { _ = locks.Close() })
}

// find reads the URL of the server.
func (o *options) find() error {
	text := o.dsn
	if text == "" {
		text = os.Getenv("TXLOCK_DSN")
	}
	if text == "" {
		return usage("no server: set TXLOCK_DSN, or give --dsn postgres://user@host/database")
	}
	server, err := dsn.Parse(strings.TrimSpace(text), os.Getenv) // a URL from a file may have a line end
	if err != nil {
		return usage("the URL of the server: %v", err)
	}
	o.server = server
	return nil
}

// findTable is find, and also checks that the table's database is known: on MySQL and MariaDB the
// URL or the table's name must include it.
func (o *options) findTable() error {
	if err := o.find(); err != nil {
		return err
	}
	quoted, _ := identifier.Quote(o.table, '`', 2) // checkTable has its error
	if o.server.System == dsn.MySQL && o.server.Database == "" && !strings.Contains(quoted, "`.`") {
		return usage("the URL of the server names no database, in which %s is: write mysql://…/database, or --table "+
			"database.%[1]s", o.table)
	}
	return nil
}

// open connects to the server, within the time that the URL allows.
func (o *options) open(ctx context.Context, settings ...txlock.Option) (locker, error) {
	if err := o.findTable(); err != nil {
		return nil, err
	}
	settings = append(settings, txlock.WithTable(o.table))
	if o.hide {
		settings = append(settings, txlock.WithHiddenKeys())
	}
	var l locker
	var err error
	bounded, cancel := context.WithTimeout(ctx, o.server.Timeout)
	defer cancel()
	if o.server.System == dsn.Postgres {
		var driver *postgres.Driver
		if driver, err = postgres.Open(bounded, o.server.Driver); err == nil {
			l = lockerOf[pgx.Tx]{txlock.New(driver, settings...), driver, o.table}
		}
	} else {
		var driver *mysql.Driver
		if driver, err = mysql.Open(bounded, o.server.Driver); err == nil {
			l = lockerOf[*sql.Tx]{txlock.New(driver, settings...), driver, o.table}
		}
	}
	return l, o.failed(ctx, "connect to "+o.server.Address, overdue(ctx, bounded, o.server.Timeout, err))
}

// with opens a Locker, does the work with it, and leaves it.
func (o *options) with(ctx context.Context, work func(locker) error, settings ...txlock.Option) error {
	locks, err := o.open(ctx, settings...)
	if err != nil {
		return err
	}
	defer leave(locks)
	return work(locks)
}

// workTimeout limits installing and examining.
const workTimeout = time.Minute

// ask limits the time of a question to the server, which may have fallen silent. doing describes it
// in the error.
func (o *options) ask(
	ctx context.Context, doing string, limit time.Duration, question func(context.Context) error,
) error {
	bounded, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return o.failed(ctx, doing, overdue(ctx, bounded, limit, question(bounded)))
}

// overdue returns err or, if the time limit has passed, an error that says so.
func overdue(ctx, bounded context.Context, limit time.Duration, err error) error {
	if err != nil && ctx.Err() == nil && errors.Is(bounded.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("no answer within %v: %w", limit, bounded.Err())
	}
	return err
}

// inspect returns what the server shows, if it answers in time.
func (o *options) inspect(
	ctx context.Context, doing string, locks locker, keys ...string,
) (holdings []txlock.Holding, err error) {
	err = o.ask(ctx, doing, o.server.Timeout, func(ctx context.Context) error {
		holdings, err = locks.Inspect(ctx, keys...)
		return err
	})
	return holdings, err
}
