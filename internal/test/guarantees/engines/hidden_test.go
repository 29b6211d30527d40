package engines

import (
	"bytes"
	"context"
	"crypto/rand"
	"database/sql"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// talkative are settings with which a server logs every statement, and shows what it can.
func talkative(kind servers.Kind) []string {
	if kind.Postgres() {
		return []string{
			"-c", "logging_collector=on", "-c", "log_statement=all", "-c", "log_lock_waits=on",
			"-c", "log_error_verbosity=verbose", "-c", "log_connections=on",
		}
	}
	return []string{
		"--innodb-lock-wait-timeout=600", "--general-log=ON", "--log-output=TABLE", "--performance-schema=ON",
		"--performance-schema-consumer-events-statements-current=ON",
		"--performance-schema-consumer-events-statements-history=ON",
		"--performance-schema-consumer-events-statements-history-long=ON",
		"--performance-schema-instrument=wait/lock/metadata/sql/mdl=ON",
	}
}

// With hidden keys, no view, table or log of the server has a key, of whatever kind of lock, held
// or awaited. Without, the views and the log have it. Clients of both kinds exclude each other.
func TestHiddenKeys(t *testing.T) {
	t.Parallel()
	for _, kind := range servers.Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			e := testbed.Own(t, kind, talkative(kind)...)
			if !e.Postgres {
				eachClient(t, e, testbed.MySQLSQL)
				return
			}
			eachClient(t, e, testbed.PostgresPgx)
			eachClient(t, e, testbed.PostgresSQL)
		})
	}
}

func eachClient[Tx any](t *testing.T, e *testbed.Engine, clients []testbed.Client[Tx]) {
	t.Helper()
	last := clients[len(clients)-1:]
	for _, c := range tier.Pick(last, last, clients) {
		t.Run(c.Name, func(t *testing.T) {
			one, other := fixtureOf(t, e, c, txlock.WithHiddenKeys()), fixtureOf(t, e, c, txlock.WithHiddenKeys())
			require.Empty(t, holdAll(t, one, other))
			mixed := holdAll(t, fixtureOf(t, e, c), fixtureOf(t, e, c, txlock.WithHiddenKeys()))
			leaders := testbed.TableOf(e, "txlock_slots_leaders")
			if e.Postgres {
				require.Subset(t, mixed, []string{"pg_stat_activity", "the log", leaders})
			} else {
				statements := "performance_schema.events_statements_current"
				require.Subset(t, mixed, []string{statements, "mysql.general_log", leaders})
			}
		})
	}
}

func fixtureOf[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], options ...txlock.Option) (
	f *testbed.Fixture[Tx],
) {
	t.Helper()
	return testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", append(options, txlock.WithLease(time.Hour))...)
}

// locking locks a key in one of many ways, and calls inside while it is locked. It says whether it
// has to wait for another that holds the key in the same way.
type locking[Tx any] func(f *testbed.Fixture[Tx], key string, waits bool, inside func()) error

// ways are all ways to lock. The first that waits for a permit waits for no lock.
func ways[Tx any]() map[string]locking[Tx] {
	type fixture = *testbed.Fixture[Tx]
	lock := func(m *txlock.Mutex[Tx], inside func()) error {
		held, err := m.Lock(background)
		if err != nil {
			return err
		}
		inside()
		return held.Unlock(background)
	}
	in := func(f fixture, lock func(tx Tx) error, inside func()) error { // in a transaction of the caller's
		tx, leave, err := f.Start(f.DSNFor(f.Label, "", nil), 0)
		if err != nil {
			return err
		}
		defer leave()
		if err := lock(tx); err != nil {
			return err
		}
		inside()
		return f.End(background, tx, true)
	}
	done := func(o *txlock.Once[Tx], inside func()) error {
		_, err := o.Do(background, func(context.Context, Tx) error {
			inside()
			return nil
		})
		return err
	}
	sharedIf := func(shared bool, m *txlock.Mutex[Tx]) *txlock.Mutex[Tx] {
		if shared {
			return m.Shared()
		}
		return m
	}
	return map[string]locking[Tx]{
		"Mutex": func(f fixture, key string, _ bool, inside func()) error { return lock(f.Locks.Mutex(key), inside) },
		"keys": func(f fixture, key string, _ bool, inside func()) error {
			return lock(f.Locks.Mutex(key+"-", key), inside)
		},
		"Shared": func(f fixture, key string, waits bool, inside func()) error {
			return lock(sharedIf(!waits, f.Locks.Mutex(key)), inside)
		},
		"Shared behind": func(f fixture, key string, waits bool, inside func()) error {
			return lock(sharedIf(waits, f.Locks.Mutex(key)), inside)
		},
		"Semaphore": func(f fixture, key string, _ bool, inside func()) error {
			return lock(f.Locks.Semaphore(key, 1), inside)
		},
		"Once": func(f fixture, key string, _ bool, inside func()) error { return done(f.Locks.Once(key), inside) },
		"Per": func(f fixture, key string, _ bool, inside func()) error {
			return done(f.Locks.Once(key).Per(time.Hour), inside)
		},
		"DoTx": func(f fixture, key string, _ bool, inside func()) error {
			return in(f, func(tx Tx) error { _, err := f.Locks.Once(key).DoTx(background, tx); return err }, inside)
		},
		"LockTx": func(f fixture, key string, _ bool, inside func()) error {
			return in(f, func(tx Tx) error { return f.Locks.Mutex(key, key+"+").LockTx(background, tx) }, inside)
		},
		"Election": func(f fixture, key string, _ bool, inside func()) error {
			return f.Locks.Election(key, "somebody").Lead(background, func(context.Context, int64) error {
				inside()
				return nil
			})
		},
		"nested": func(f fixture, key string, _ bool, inside func()) error {
			return f.Locks.Mutex(key+"~").Do(background, func(ctx context.Context, _ Tx) error {
				return f.Locks.Mutex(key).Do(ctx, func(context.Context, Tx) error { inside(); return nil })
			})
		},
	}
}

// holdAll holds a key in each way, and has another wait for it. It shows that the other gets none
// before it is free, and returns where the server has shown keys meanwhile and afterwards.
func holdAll[Tx any](t *testing.T, holder, waiter *testbed.Fixture[Tx]) (places []string) {
	t.Helper()
	var inside sync.WaitGroup // holders
	var entered atomic.Int64  // waiters
	var group errgroup.Group
	release := make(chan struct{})
	free := sync.OnceFunc(func() { close(release) })
	defer free()
	type asked struct{ name, key string }
	secret := strings.ToLower(rand.Text()[:10])
	var all []asked
	for name, way := range ways[Tx]() {
		key := holder.OnceKey(secret, "", "once:", "once:1h0m0s:")
		all = append(all, asked{name, key})
		inside.Add(1)
		begun := sync.OnceFunc(inside.Done)
		group.Go(func() error {
			defer begun()
			return way(holder, key, false, func() {
				begun()
				<-release
			})
		})
	}
	inside.Wait()
	for _, a := range all {
		group.Go(func() error {
			err := ways[Tx]()[a.name](waiter, a.key, true, func() { entered.Add(1) })
			if err != nil {
				return fmt.Errorf("%s waits: %w", a.name, err)
			}
			return nil
		})
	}
	const permits = 1
	eventually.Every(t, "all wait", testbed.PollEvery, func() bool { return waiter.Waiting(t) >= len(all)-permits })
	for _, a := range all { // who names a hidden key finds it
		if a.name != "Mutex" && a.name != "Semaphore" && a.name != "Election" {
			continue
		}
		shown := must.Get(waiter.Locks.Inspect(background, a.key))(t)
		require.Len(t, shown, 1, a.name)
		if a.name != "Mutex" {
			require.Equal(t, a.key, shown[0].Key)
		}
	}
	places = searched(t, holder.Engine, secret, "history|summary|general_log") // which keep it
	require.Zero(t, entered.Load(), "somebody was let in")
	free()
	require.NoError(t, group.Wait())
	require.Positive(t, entered.Load())
	return append(places, searched(t, holder.Engine, secret, "^variables")...)
}

// searched are the views, tables and logs of the server in which the key is. On MySQL and MariaDB,
// those whose names are like without are left out.
func searched(t *testing.T, e *testbed.Engine, key, without string) (places []string) {
	t.Helper()
	look := func(place, query string) {
		has := false
		each(t, e, query, func(fields []sql.RawBytes) {
			for _, field := range fields {
				has = has || bytes.Contains(bytes.ToLower(field), []byte(key))
			}
		})
		if has {
			places = append(places, place)
		}
	}
	if e.Postgres {
		logOf(t, e) // in which all is then that was sent before
		look("the log", "select pg_read_file(pg_current_logfile())")
		for _, view := range []string{"pg_stat_activity", "pg_locks", "pg_prepared_xacts"} {
			look(view, "select v::text from "+view+" v")
		}
		for _, table := range column(t, e, "select format('%I.%I', schemaname, tablename) from pg_tables where "+
			"tablename ~ '^txlock_slots_'") {
			look(table, "select v::text from "+table+" v")
		}
		return places
	}
	for _, table := range column(t, e, "SELECT CONCAT(table_schema, '.', table_name) FROM information_schema.tables "+
		"WHERE table_name NOT REGEXP '"+without+"' AND (table_schema = 'performance_schema' AND "+
		"table_name REGEXP 'statement|lock|thread|user_variable|attrs|"+
		"transaction|processlist' AND table_name NOT REGEXP '^variables|^status|^setup|histogram' OR "+
		"table_schema = 'information_schema' AND table_name REGEXP 'processlist|innodb_(trx|lock)' OR "+
		"table_schema = 'mysql' AND table_name = 'general_log' OR table_name LIKE 'txlock_slots\\_%')") {
		look(table, "SELECT * FROM "+table)
	}
	look("InnoDB's status", "SHOW ENGINE INNODB STATUS")
	look("the list of processes", "SHOW FULL PROCESSLIST")
	return places
}

func column(t *testing.T, e *testbed.Engine, query string) (texts []string) {
	t.Helper()
	each(t, e, query, func(fields []sql.RawBytes) { texts = append(texts, string(fields[0])) })
	return texts
}

func each(t *testing.T, e *testbed.Engine, query string, visit func(fields []sql.RawBytes)) {
	t.Helper()
	rows, err := e.Admin.Query(query)
	require.NoError(t, err, query)
	defer rows.Close()
	columns := must.Get(rows.Columns())(t)
	fields := make([]sql.RawBytes, len(columns))
	targets := make([]any, len(columns))
	for i := range fields {
		targets[i] = &fields[i]
	}
	for rows.Next() {
		require.NoError(t, rows.Scan(targets...))
		visit(fields)
	}
	require.NoError(t, rows.Err())
}

// logOf is the log of a server of the test's own, in which all is that was logged before.
func logOf(t *testing.T, e *testbed.Engine) (text string) {
	t.Helper()
	mark := "logged " + rand.Text()
	e.AsAdmin(t, "DO $$ BEGIN RAISE LOG '"+mark+"'; END $$")
	eventually.True(t, "the log has the mark", func() bool {
		text = column(t, e, "SELECT pg_read_file(pg_current_logfile())")[0]
		return strings.Contains(text, mark)
	})
	return text
}
