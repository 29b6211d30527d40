package txlock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/url"
	"os"
	"os/signal"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/leaks"
	"github.com/txlock/txlock/internal/servers"
)

// engine is a running server, and how a test asks it what only the server knows.
type engine struct {
	*servers.Server
	admin    *sql.DB
	install  sync.Once // of the lock table that all fixtures share
	postgres bool
	pooled   bool // through a pooler, which has connections of its own to the server
	tells    bool // shows what an idle session says of itself
	// queued counts the waiters of the fixture that label names; exact, but on MariaDB up to 100 ms
	// old.
	queued string
	// sessions counts the fixture's sessions that are in a transaction.
	sessions string
	// pollEvery is how often a test asks the server who waits.
	pollEvery time.Duration
	views     rested
}

// rested is for InnoDB's views, which go on serving an old picture as long as anybody asks again
// within 100 ms.
type rested struct {
	mu   sync.Mutex
	last time.Time
}

// ask calls query when nobody has asked for long enough.
func (r *rested) ask(query func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	<-time.After(time.Until(r.last.Add(120 * time.Millisecond)))
	query()
	r.last = time.Now()
}

var engines []*engine

func TestMain(m *testing.M) {
	if part := os.Getenv(partVariable); part != "" {
		os.Exit(playPart(part))
	}
	os.Exit(runTests(m))
}

func runTests(m *testing.M) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return servers.RunOn(ctx, servers.Kinds(), func(server *servers.Server) (io.Closer, error) {
		fmt.Printf("%s: %s\n", server.Name, server.Origin)
		e, err := newEngine(server)
		if err != nil {
			return nil, err
		}
		engines = append(engines, e)
		return e.admin, nil
	}, m.Run)
}

func newEngine(server *servers.Server) (*engine, error) {
	e := &engine{Server: server, pollEvery: 2 * time.Millisecond, tells: server.Kind != servers.MariaDB}
	driverName := "mysql"
	switch server.Kind {
	case servers.MySQL:
		e.queued = `SELECT COUNT(DISTINCT w.REQUESTING_THREAD_ID) FROM performance_schema.data_lock_waits w
			JOIN performance_schema.threads t ON t.THREAD_ID = w.REQUESTING_THREAD_ID WHERE t.PROCESSLIST_DB = ?`
		e.sessions = `SELECT COUNT(*) FROM information_schema.innodb_trx x JOIN performance_schema.threads t
			ON t.PROCESSLIST_ID = x.trx_mysql_thread_id WHERE t.PROCESSLIST_DB = ?`
	case servers.MariaDB:
		e.queued = `SELECT COUNT(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p
			ON p.id = x.trx_mysql_thread_id WHERE p.db = ? AND x.trx_state = 'LOCK WAIT'`
		e.sessions = `SELECT COUNT(*) FROM information_schema.innodb_trx x JOIN information_schema.processlist p
			ON p.id = x.trx_mysql_thread_id WHERE p.db = ?`
	default:
		driverName = "pgx"
		e.postgres = true
		e.queued = `SELECT COUNT(*) FROM pg_stat_activity WHERE split_part(application_name, '#', 1) = $1 AND wait_event_type = 'Lock'`
		e.sessions = `SELECT COUNT(*) FROM pg_stat_activity WHERE split_part(application_name, '#', 1) = $1 AND xact_start IS NOT NULL`
	}
	var err error
	if e.admin, err = sql.Open(driverName, server.DSN); err != nil {
		return nil, err
	}
	e.admin.SetMaxOpenConns(4)
	e.admin.SetMaxIdleConns(4)
	return e, nil
}

// label names a fixture on the server: its application on PostgreSQL, its database on MySQL and
// MariaDB.
func (e *engine) dsn(label, address string, parameters url.Values) string {
	if e.postgres {
		u, err := url.Parse(e.DSN)
		if err != nil {
			panic(err)
		}
		query := u.Query()
		query.Set("application_name", label)
		for name, values := range parameters {
			query.Set(name, values[0])
		}
		u.RawQuery = query.Encode()
		if address != "" {
			u.Host = address
		}
		return u.String()
	}
	dsn, query, _ := strings.Cut(e.DSN, "?")
	dsn = dsn[:strings.LastIndexByte(dsn, '/')+1] + label
	if address != "" {
		dsn = mysqlAddress.ReplaceAllString(dsn, "("+address+")")
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		panic(err)
	}
	for name, value := range parameters {
		values[name] = value
	}
	if len(values) > 0 {
		dsn += "?" + values.Encode()
	}
	return dsn
}

var mysqlAddress = regexp.MustCompile(`\([^)]*\)`)

// address is where the server listens.
func (e *engine) address() string {
	if e.postgres {
		u, err := url.Parse(e.DSN)
		if err != nil {
			panic(err)
		}
		return u.Host
	}
	return strings.Trim(mysqlAddress.FindString(e.DSN), "()")
}

// table is the lock table as every fixture spells it.
func (e *engine) table() string {
	if e.postgres {
		return "public.txlock_slots"
	}
	dsn, _, _ := strings.Cut(e.DSN, "?")
	return dsn[strings.LastIndexByte(dsn, '/')+1:] + ".txlock_slots"
}

// fixture is a Locker on its own connections, for one test.
type fixture[Tx any] struct {
	client[Tx]
	*engine
	label string
	keys  map[string]string // by name, as long as the test runs
	locks *txlock.Locker[Tx]
	pool  pool
}

var labels atomic.Int64

// labelOf is the name of this run's nth fixture, as short as can be: PostgreSQL shows 50 bytes of
// the application, the process and the key together, and the numbers of processes have up to seven
// digits. A server that outlives the run may be given to several.
func labelOf(n int64) string {
	return "test_" + strconv.FormatInt(int64(os.Getpid()), 36) + "_" + strconv.FormatInt(n, 36)
}

const poolSize = 40

func newFixture[Tx any](t *testing.T, e *engine, c client[Tx]) *fixture[Tx] {
	return newSizedFixture(t, e, c, poolSize, "")
}

// newSizedFixture connects through address, if it is not empty. Behind the test it asks the server
// whether anything of the fixture is left.
func newSizedFixture[Tx any](t *testing.T, e *engine, c client[Tx], size int, address string,
	options ...txlock.Option,
) *fixture[Tx] {
	t.Helper()
	noGoroutines(t)
	return newParallelFixture(t, e, c, size, address, options...)
}

// noGoroutines shows behind the test, and what was cleaned up for it since, that no goroutine is
// left.
func noGoroutines(t *testing.T) {
	t.Helper()
	// panics in a test that others run beside, whose goroutines would be found
	t.Setenv("TXLOCK_TEST_RUNS_ALONE", "yes")
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		require.NoError(t, leaks.FindBesidesPools(before,
			goleak.IgnoreAnyFunction("github.com/txlock/txlock/internal/wire.(*Proxy).forward"),
			// of a server that the test restarted
			goleak.IgnoreAnyFunction("github.com/txlock/txlock/internal/servers.launch.func1"),
			goleak.IgnoreAnyFunction("os/exec.(*Cmd).writerDescriptor.func1")))
	})
}

// newParallelFixture leaves goroutines to the test that other tests run beside.
func newParallelFixture[Tx any](t *testing.T, e *engine, c client[Tx], size int, address string,
	options ...txlock.Option,
) *fixture[Tx] {
	t.Helper()
	f := &fixture[Tx]{client: c, engine: e, label: labelOf(labels.Add(1)), keys: map[string]string{}}
	t.Cleanup(f.giveKeysBack)
	if !e.postgres {
		f.admitted(t, "CREATE DATABASE "+f.label+" CHARACTER SET utf8mb4")
		t.Cleanup(func() { f.drop(t, "DATABASE "+f.label) })
	}
	driver, p := c.connect(t, e.dsn(f.label, address, nil), size)
	f.pool = p
	e.install.Do(func() { require.NoError(t, txlock.New(driver, txlock.WithTable(e.table())).Install(background)) })
	f.locks = txlock.New(driver, append([]txlock.Option{txlock.WithTable(e.table())}, options...)...)
	t.Cleanup(func() {
		require.NoError(t, f.locks.Close())
		p.close()
		f.transactions(t, 0)
	})
	return f
}

// usedSlots are those of the keys of all fixtures whose tests run: side by side, they must not meet
// in one.
var usedSlots = struct {
	mu    sync.Mutex
	taken map[uint32]bool
}{taken: map[uint32]bool{}}

func slotOf(key string, slots int) uint32 { return crc32.ChecksumIEEE([]byte(key)) % uint32(slots) }

// key is a key that no other test uses.
func (f *fixture[Tx]) key(name string) string {
	usedSlots.mu.Lock()
	defer usedSlots.mu.Unlock()
	key, known := f.keys[name]
	if known {
		return key
	}
	key = name + ":" + strings.TrimPrefix(f.label, "test_") // the name first: servers show the beginning
	for usedSlots.taken[slotOf(key, dialects.DefaultSlots)] {
		key += "-" // shown as it is
	}
	f.keys[name], usedSlots.taken[slotOf(key, dialects.DefaultSlots)] = key, true
	return key
}

func (f *fixture[Tx]) giveKeysBack() {
	usedSlots.mu.Lock()
	defer usedSlots.mu.Unlock()
	for _, key := range f.keys {
		delete(usedSlots.taken, slotOf(key, dialects.DefaultSlots))
	}
}

// admitted runs a statement as the administrator.
func (e *engine) admitted(t *testing.T, query string) {
	t.Helper()
	_, err := e.admin.Exec(query)
	require.NoError(t, err)
}

// startWork runs a Do in the background that inserts a row, waits for the end of its context, says
// when that came, and does not look at it otherwise. It returns when the work has begun, or failed.
func (f *fixture[Tx]) startWork(key, table string) (done <-chan error, ended <-chan time.Time) {
	working, result, end := make(chan struct{}), make(chan error, 1), make(chan time.Time, 1)
	go func() {
		defer close(working)
		result <- f.locks.Mutex(key).Do(background, func(ctx context.Context, tx Tx) error {
			if err := f.exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"); err != nil {
				return err
			}
			working <- struct{}{}
			<-ctx.Done()
			end <- time.Now()
			return nil
		})
	}()
	<-working
	return result, end
}

// makeTable creates a table of the fixture's own and returns its name, good from every connection.
func (f *fixture[Tx]) makeTable(t *testing.T, columns string) string {
	t.Helper()
	name := f.label + "." + "things"
	if f.postgres {
		name = f.label
	}
	f.admitted(t, "CREATE TABLE "+name+" ("+columns+")")
	if f.postgres {
		t.Cleanup(func() { f.drop(t, "TABLE "+name) })
	}
	return name
}

// drop drops what the fixture has made. What a test that failed has left open there would keep it
// waiting.
func (f *fixture[Tx]) drop(t *testing.T, what string) {
	t.Helper()
	if t.Failed() {
		f.killSessions(t)
	}
	f.admitted(t, "DROP "+what)
}

// total reads a number as somebody else sees it: what is committed.
func (f *fixture[Tx]) total(t *testing.T, query string) (n int) {
	t.Helper()
	require.NoError(t, f.admin.QueryRow(query).Scan(&n))
	return n
}

// free fails the test unless other connections can take the keys at once.
func (f *fixture[Tx]) free(t *testing.T, keys ...string) {
	t.Helper()
	lock, err := f.locks.Mutex(keys...).TryLock(context.Background())
	require.NoError(t, err, "the lock should be free")
	require.NoError(t, lock.Unlock(context.Background()))
}

// taken fails the test unless the keys are held by somebody.
func (f *fixture[Tx]) taken(t *testing.T, keys ...string) {
	t.Helper()
	_, err := f.locks.Mutex(keys...).TryLock(context.Background())
	require.ErrorIs(t, err, txlock.ErrNotAcquired, "the lock should be taken")
}

var errWork = errors.New("the work failed")
