package txlockgoose_test

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	mysqldriver "github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	txlockgoose "github.com/txlock/txlock/goose"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

// engine is a running server. Each has a client of its own, so that every kind is tried.
type engine struct {
	*servers.Server
	admin   *sql.DB
	driver  string // its name in database/sql
	dialect goose.Dialect
	connect func(dsn string, db *sql.DB) (*replica, error)
	asking  sync.Mutex // held by who asks the server about its locks
}

var engines []*engine

func TestMain(m *testing.M) {
	ctx := context.Background()
	kinds := []servers.Kind{servers.Postgres15, servers.Postgres18, servers.MySQL, servers.MariaDB}
	os.Exit(servers.RunOn(kinds, func(server *servers.Server) (io.Closer, error) {
		e := &engine{Server: server, driver: "mysql", dialect: goose.DialectMySQL}
		switch server.Kind {
		case servers.Postgres15:
			e.connect = func(dsn string, _ *sql.DB) (*replica, error) {
				driver, err := postgres.Open(ctx, dsn)
				return lockWith(driver, err)
			}
		case servers.Postgres18: // goose's own pool is for the lock as well
			e.connect = func(_ string, db *sql.DB) (*replica, error) { return lockWith(postgres.NewSQL(db), nil) }
		case servers.MySQL:
			e.connect = func(dsn string, _ *sql.DB) (*replica, error) {
				driver, err := mysql.Open(ctx, dsn)
				return lockWith(driver, err)
			}
		default:
			e.connect = func(_ string, db *sql.DB) (*replica, error) { return lockWith(mysql.New(db), nil) }
		}
		if e.postgres() {
			e.driver, e.dialect = "pgx", goose.DialectPostgres
		}
		var err error
		if e.admin, err = sql.Open(e.driver, server.DSN); err != nil {
			return nil, err
		}
		engines = append(engines, e)
		return e.admin, nil
	}, m.Run))
}

func (e *engine) postgres() bool { return e.Kind == servers.Postgres15 || e.Kind == servers.Postgres18 }

// onEach runs a test on every engine.
func onEach(t *testing.T, test func(t *testing.T, e *engine)) { on(t, engines, test) }

// onPostgres is onEach for what only PostgreSQL has.
func onPostgres(t *testing.T, test func(t *testing.T, e *engine)) {
	on(t, slices.DeleteFunc(slices.Clone(engines), func(e *engine) bool { return !e.postgres() }), test)
}

func on(t *testing.T, engines []*engine, test func(t *testing.T, e *engine)) {
	t.Parallel()
	require.NotEmpty(t, engines)
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			test(t, e)
		})
	}
}

var databases atomic.Int64

// newDatabase creates a database for one test, and returns its DSN.
func (e *engine) newDatabase(t *testing.T) (dsn string) {
	t.Helper()
	name := fmt.Sprintf("goose_%d_%d", os.Getpid(), databases.Add(1))
	drop := "DROP DATABASE " + name
	if e.postgres() {
		drop += " WITH (FORCE)"
		u := must.Get(url.Parse(e.DSN))(t)
		u.Path = "/" + name
		dsn = u.String()
	} else {
		config := must.Get(mysqldriver.ParseDSN(e.DSN))(t)
		config.DBName, config.ParseTime = name, true // goose reads times
		dsn = config.FormatDSN()
	}
	database.Exec(t, e.admin, "CREATE DATABASE "+name)
	t.Cleanup(func() { database.Exec(t, e.admin, drop) })
	return dsn
}

// replica is one of several programs that share a database. It has pools of its own.
type replica struct {
	db     *sql.DB
	mutex  func(within time.Duration) *txlockgoose.Locker
	look   func(ctx context.Context) ([]txlock.Holding, error)
	end    func(ctx context.Context, holding txlock.Holding) error
	close  func() error
	locker *txlockgoose.Locker
}

// key is what the replicas lock. Each test has a database of its own.
const key = "migrations"

func lockWith[Tx any](driver dialects.Driver[Tx], err error) (*replica, error) {
	if err != nil {
		return nil, err
	}
	locks := txlock.New(driver, txlock.WithSlots(512))
	r := &replica{close: locks.Close, end: locks.Break}
	r.mutex = func(within time.Duration) *txlockgoose.Locker {
		m := locks.Mutex(key)
		if within > 0 {
			m = m.Within(within)
		}
		return txlockgoose.New(m)
	}
	r.look = func(ctx context.Context) ([]txlock.Holding, error) { return locks.Inspect(ctx, key) }
	r.locker = r.mutex(0)
	return r, locks.Install(context.Background())
}

// start starts a replica on a database of newDatabase.
func (e *engine) start(t *testing.T, dsn string) *replica {
	t.Helper()
	db := must.Get(sql.Open(e.driver, dsn))(t)
	db.SetMaxOpenConns(4) // goose's, the lock's, one for a Go migration, one to look
	r := must.Get(e.connect(dsn, db))(t)
	r.db = db
	t.Cleanup(func() {
		require.NoError(t, r.close())
		require.NoError(t, db.Close())
	})
	return r
}

// number reads a count from a test's database.
func number(t *testing.T, db *sql.DB, query string) (n int) {
	t.Helper()
	require.NoError(t, db.QueryRow(query).Scan(&n), strings.TrimSpace(query))
	return n
}
