package engines

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// cluster is three nodes of Galera with a Locker on each.
type cluster struct {
	*servers.Fleet
	db    [3]*sql.DB
	locks [3]*txlock.Locker[*sql.Tx]
}

// One cluster for all, because it takes seconds to start. The full tier shows the guarantees there.
func TestGalera(t *testing.T) {
	t.Parallel()
	fleet := must.Get(servers.StartGalera(background, servers.MariaDB))(t)
	t.Cleanup(func() { require.NoError(t, fleet.Stop()) })
	g := &cluster{Fleet: fleet}
	for i, node := range fleet.Servers() {
		client := testbed.MySQLOpened() // without a socket a leader learns late that its session was ended
		g.locks[i] = client.Locker(t, node.DSN, 24, txlock.WithLease(4*time.Second), txlock.WithFencing())
		g.db[i] = must.Get(sql.Open("mysql", node.DSN))(t)
		t.Cleanup(func() { _ = g.db[i].Close() })
	}
	g.install(t)
	g.exec(t, 0, "CREATE TABLE counters (k INT PRIMARY KEY, value BIGINT NOT NULL, name VARCHAR(9) UNIQUE)",
		"INSERT INTO counters SELECT seq, 0, CONCAT('Row ', seq) FROM seq_0_to_9")
	for _, test := range []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"no update is lost", noUpdateIsLost},
		{"tokens of many keys", tokensOfManyKeys},
		{"a limit on statements ends no wait", limitOnStatements},
		{"what cannot be kept is refused", whatCannotBeKeptIsRefused},
		{"the first question has no answer", theFirstQuestionHasNoAnswer},
		{"an answer that is old", anAnswerThatIsOld},
		{"a node that has left", aNodeThatHasLeft},
		{"a node cut off", aNodeCutOff}, // last
	} {
		t.Run(test.name, func(t *testing.T) { test.run(t, g) })
	}
}

func (g *cluster) exec(t *testing.T, node int, statements ...string) {
	t.Helper()
	for _, statement := range statements {
		require.NoError(t, testbed.ErrorOf(g.db[node].Exec(statement)), statement)
	}
}

// install runs Install on all nodes at once.
func (g *cluster) install(t *testing.T) {
	t.Helper()
	errs := make(chan error, len(g.locks))
	for _, locks := range g.locks {
		go func() { errs <- locks.Install(background) }()
	}
	for range g.locks {
		require.NoError(t, testbed.Receive(t, errs))
	}
	for _, locks := range g.locks {
		eventually.True(t, "the node has the lock table", func() bool { return locks.Ping(background) == nil })
		require.NoError(t, locks.Check(background))
	}
}

// value is a counter as a node sees it when it has caught up with all others.
func (g *cluster) value(t *testing.T, node, key int) (value int64) {
	t.Helper()
	require.NoError(t, g.db[node].QueryRow(fmt.Sprintf(
		"SET STATEMENT wsrep_sync_wait=1 FOR SELECT value FROM counters WHERE k = %d", key)).Scan(&value))
	return value
}

func increment(ctx context.Context, tx *sql.Tx, key int) error {
	var value int64
	if err := tx.QueryRowContext(ctx, "SELECT value FROM counters WHERE k = ?", key).Scan(&value); err != nil {
		return err
	}
	return testbed.ErrorOf(tx.ExecContext(ctx, "UPDATE counters SET value = ? WHERE k = ?", value+1, key))
}

// Work on all nodes reads a number and writes it back. What was acknowledged is there, and nothing
// else is.
func noUpdateIsLost(t *testing.T, g *cluster) {
	const key = 1
	rounds := tier.Pick(10, 10, 200)
	var acknowledged, overtaken atomic.Int64
	var all sync.WaitGroup
	work := func(ctx context.Context, tx *sql.Tx) error { return increment(ctx, tx, key) }
	for node, locks := range g.locks {
		m := locks.Mutex("counter")
		for caller := range 4 {
			all.Go(func() {
				for range rounds {
					var err error
					switch caller {
					case 0:
						err = m.TryDo(background, work)
					case 1:
						err = g.byLockTx(node, m, key)
					default:
						err = m.Do(background, work)
					}
					switch {
					case err == nil:
						acknowledged.Add(1)
					case caller == 0 && errors.Is(err, txlock.ErrNotAcquired),
						caller == 1 && errors.Is(err, txlock.ErrDeadlock):
						overtaken.Add(1)
					default:
						t.Errorf("node %d: %v", node, err)
					}
				}
			})
		}
	}
	all.Wait()
	t.Logf("%d acknowledged, %d were overtaken", acknowledged.Load(), overtaken.Load())
	for node := range g.locks {
		require.Equal(t, acknowledged.Load(), g.value(t, node, key))
	}
	require.GreaterOrEqual(t, acknowledged.Load(), int64(3*2*rounds))
}

// byLockTx does the same in a transaction at REPEATABLE READ, which the lock finds without a
// snapshot.
func (g *cluster) byLockTx(node int, m *txlock.Mutex[*sql.Tx], key int) error {
	tx, err := g.db[node].Begin()
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := m.LockTx(background, tx); err != nil {
		return err
	}
	if err := increment(background, tx, key); err != nil {
		return err
	}
	return tx.Commit()
}

// Callers on all nodes draw tokens at once, each for a key of its own. No node is so busy that
// another gets none.
func tokensOfManyKeys(t *testing.T, g *cluster) {
	var drawn sync.Map
	var all sync.WaitGroup
	for node, server := range g.Servers() {
		// The lease is longer than a busy machine needs for all that draw at once.
		locks := testbed.MySQLOpened().Locker(t, server.DSN, 24, txlock.WithFencing())
		for caller := range 12 {
			all.Go(func() {
				m, last := locks.Mutex(fmt.Sprintf("of %d on %d", caller, node)), int64(0)
				for range tier.Pick(15, 15, 100) {
					lock, err := m.Lock(background)
					if err != nil {
						t.Error(err)
						return
					}
					if _, twice := drawn.LoadOrStore(lock.Token(), true); twice || lock.Token() <= last {
						t.Errorf("token %d behind %d", lock.Token(), last)
					}
					last = lock.Token()
					if err := lock.Unlock(background); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	all.Wait()
}

// A wait of ours has a limit of its own, which overrules the session's.
func limitOnStatements(t *testing.T, g *cluster) {
	lock := testbed.Lock(t, g.locks[0].Mutex("held"))
	limited, pool := testbed.MySQLOpened().Connect(t, g.Servers()[0].DSN+"?max_statement_time=0.3", 4)
	t.Cleanup(pool.Close)
	ctx, cancel := context.WithCancel(background)
	ended := testbed.Go(func() error { _, err := txlock.New(limited).Mutex("held").Lock(ctx); return err })
	eventually.True(t, "a limit of ours overrules the session's", func() bool {
		var ours int
		require.NoError(t, g.db[0].QueryRow("SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE "+
			"CONCAT('%max_statement_time=', '2073600.000%')").Scan(&ours))
		return ours == 1
	})
	cancel()
	require.ErrorIs(t, testbed.Receive(t, ended), txlock.ErrNotAcquired)
	testbed.Unlock(t, lock)
}

func whatCannotBeKeptIsRefused(t *testing.T, g *cluster) {
	refused := func(err error) {
		t.Helper()
		require.ErrorIs(t, err, txlock.ErrUnsafeEngine)
		require.ErrorContains(t, err, "Galera")
	}
	locks := g.locks[0]
	_, err := locks.Mutex("k").Shared().TryLock(background)
	refused(err)
	_, err = locks.Semaphore("s", 2).TryLock(background)
	refused(err)
	_, err = locks.Rows("counters", "k", 1).TryLock(background)
	refused(err)
	refused(locks.Rows("counters", "k", 1).Do(background, idle[*sql.Tx]))
	free := txlock.Any[int64](locks, "counters", "k", "TRUE")
	none := func(context.Context, *sql.Tx, []int64) error { return nil }
	refused(free.Do(background, none))
	require.NoError(t, locks.Mutex("k").Do(background, func(ctx context.Context, _ *sql.Tx) error {
		refused(free.Do(ctx, none))
		return nil
	}))
	alone := database.Open(t, "mysql", g.Servers()[0].DSN+"?wsrep_on=OFF")
	_, err = txlock.New(mysql.New(alone)).Mutex("k").TryLock(background)
	refused(err)
	conn := must.Get(g.db[0].Conn(background))(t)
	defer conn.Close()
	for _, first := range []string{
		"SET wsrep_on = OFF", "SET binlog_format = 'STATEMENT'",
		"SET wsrep_trx_fragment_unit = 'bytes', wsrep_trx_fragment_size = 1",
	} {
		database.Exec(t, conn, first)
		tx := must.Get(conn.BeginTx(background, nil))(t)
		database.Exec(t, tx, "UPDATE counters SET value = value + 1 WHERE k = 4")
		refused(locks.Mutex("k").LockTx(background, tx))
		require.NoError(t, tx.Rollback())
		_, err = conn.ExecContext(background, "SET wsrep_on = DEFAULT, binlog_format = DEFAULT, "+
			"wsrep_trx_fragment_unit = DEFAULT, wsrep_trx_fragment_size = DEFAULT")
		require.NoError(t, err)
	}
	g.exec(t, 0, "CREATE TABLE old LIKE txlock_slots", "ALTER TABLE old DROP COLUMN taken",
		"INSERT INTO old VALUES (0, 1)")
	_, err = txlock.New(mysql.New(g.db[0]), txlock.WithTable("old")).Mutex("k").TryLock(background)
	require.ErrorIs(t, err, txlock.ErrNotInstalled)
	require.ErrorContains(t, err, "ADD COLUMN taken")
}

// A Locker that meets the server first in a transaction that another node has ended does not take
// it for a server that is no node.
func theFirstQuestionHasNoAnswer(t *testing.T, g *cluster) {
	locks := txlock.New(mysql.New(g.db[0]))
	tx := must.Get(g.db[0].Begin())(t)
	defer tx.Rollback()
	require.NoError(t, increment(background, tx, 5))
	g.exec(t, 1, "UPDATE counters SET value = 10 WHERE k = 5")
	require.EqualValues(t, 10, g.value(t, 0, 5))
	// Of rows of the caller's no other connection is asked for a lock table first.
	require.ErrorIs(t, locks.Rows("counters", "k", 5).LockTx(background, tx), txlock.ErrDeadlock)
	require.NoError(t, locks.Mutex("first").Do(background, func(context.Context, *sql.Tx) error {
		testbed.Misses(t, g.locks[1].Mutex("first"))
		return nil
	}))
}
