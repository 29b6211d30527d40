package engines

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/wire"
)

// A server that has become read-only refuses the commit of what was written before.
func TestCommitWhenReadOnly(t *testing.T) {
	t.Parallel()
	eachOwnMySQL(t, commitWhenReadOnly)
}

func commitWhenReadOnly(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key")
	locks := f.AnotherBy(t, ordinaryUser(t, f).FormatDSN(), 1) // the administrator may write also then
	m := locks.Mutex(f.Key("refused"))
	insert := func(then func()) error {
		return m.Do(background, func(ctx context.Context, tx *sql.Tx) error {
			defer then()
			return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)")
		})
	}
	err := insert(func() { f.AsAdmin(t, "SET GLOBAL read_only = ON") })
	f.AsAdmin(t, "SET GLOBAL read_only = OFF")
	var refused *mysql.MySQLError
	require.ErrorAs(t, err, &refused)
	require.EqualValues(t, 1290, refused.Number)
	require.NotErrorIs(t, err, txlock.ErrLost, "it is known that nothing is committed")
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
	f.Free(t, f.Key("refused"))
	require.NoError(t, insert(func() {}))
	require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table))
}

// A connection that breaks while the end of a Do is on its way leaves nobody in doubt where COMMIT
// was not sent: that is so where statements travel one by one.
func TestCommitOnABrokenConnection(t *testing.T) {
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) {
		for _, c := range testbed.MySQLSQL {
			t.Run(c.Name, func(t *testing.T) {
				f, proxy := testbed.Proxied(t, e, c, 2)
				table := f.MakeTable(t, "id int primary key")
				err := f.Locks.Mutex(f.Key("broken")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
					defer proxy.Behave(wire.Network{Reset: true})
					return f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)")
				})
				require.ErrorIs(t, err, txlock.ErrLost)
				if c.Name == testbed.MySQLSQL[0].Name {
					require.NotErrorIs(t, err, txlock.ErrUnknown)
					require.ErrorContains(t, err, "broke before COMMIT, so nothing is committed")
				} else {
					require.ErrorIs(t, err, txlock.ErrUnknown)
				}
				require.NotContains(t, err.Error(), "not sent", "what is said of the way back is no word on COMMIT")
				require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table))
			})
		}
	})
}

// ordinaryUser is a user of the fixture who has no privileges but those that locks take.
func ordinaryUser(t *testing.T, f *testbed.Fixture[*sql.Tx]) *mysql.Config {
	user := "'" + f.Label + "'@'%'"
	f.AsAdmin(t, "CREATE USER "+user)
	t.Cleanup(func() { f.AsAdmin(t, "DROP USER "+user) })
	f.AsAdmin(t, "GRANT SELECT, UPDATE ON "+f.Table()+" TO "+user)
	f.AsAdmin(t, "GRANT ALL ON "+f.Label+".* TO "+user)
	config, err := mysql.ParseDSN(f.DSNFor(f.Label, "", nil))
	require.NoError(t, err)
	config.User, config.Passwd = f.Label, ""
	return config
}

// An Exec whose connection breaks while pgx has a new statement prepared is lost, and nothing of it
// is committed. Where the connection breaks at BEGIN there was nothing to lose.
func TestExecOnABrokenConnection(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		clientsOf(t, e, execBreaks[pgx.Tx], execBreaks[*sql.Tx])
	})
}

func execBreaks[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, proxy := testbed.Proxied(t, e, c, 2)
	table := f.MakeTable(t, "id int primary key")
	m, n := f.Locks.Mutex(f.Key("broken")), 0
	insert := func(ctx context.Context) error { // a new text each time
		n++
		_, err := m.Exec(ctx, txlock.Statement{
			SQL:  fmt.Sprintf("INSERT INTO %s /* %d */ VALUES ($1)", table, n),
			Args: []any{n},
		})
		return err
	}
	require.NoError(t, insert(background)) // connects
	broken := func(what string, call func() error) {
		proxy.Behave(wire.Network{Reset: true})
		err := call()
		proxy.Behave(wire.Network{})
		require.ErrorIs(t, err, txlock.ErrLost, what)
		require.Equal(t, 1, f.Total(t, "SELECT COUNT(*) FROM "+table), what)
		f.Transactions(t, 0)
		f.Free(t, f.Key("broken"))
	}
	if c.Name == testbed.PgxOpened().Name || c.Name == testbed.PostgresPgx[0].Name {
		broken("alone", func() error { return insert(background) })
	}
	broken("in the work of a Do", func() error {
		proxy.Behave(wire.Network{})
		return m.Do(background, func(ctx context.Context, _ Tx) error {
			proxy.Behave(wire.Network{Reset: true})
			return insert(ctx)
		})
	})
}

// Where the server rolls the whole transaction back when a wait was too long, that is a loss, and
// no lock that was missed.
func TestRollbackOnTimeout(t *testing.T) {
	t.Parallel()
	eachOwnMySQL(t, func(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
		f := testbed.NewFixture(t, e, c)
		require.NoError(t, f.Locks.Install(background))
		table := f.MakeTable(t, "id int primary key, n int")
		f.AsAdmin(t, "INSERT INTO "+table+" VALUES (1, 0), (2, 0)")
		held := testbed.Lock(t, f.Locks.Rows(table, "id", 1))
		for call, m := range map[string]*txlock.Mutex[*sql.Tx]{
			"LockTx": f.Locks.Rows(table, "id", 1), "TryLockTx": f.Locks.Rows(table, "id", 1),
		} {
			tx := f.Guest(t)
			require.NoError(t, f.Exec(background, tx, "UPDATE "+table+" SET n = n + 1 WHERE id = 2"))
			lock, want := m.LockTx, txlock.ErrLost
			if call == "TryLockTx" {
				if lock = m.TryLockTx; e.Kind == servers.MySQL { // NOWAIT is an error of its own there
					want = txlock.ErrNotAcquired
				}
			}
			begun := time.Now()
			require.ErrorIs(t, lock(background, tx), want, call)
			require.Less(t, time.Since(begun), 20*time.Second)
			require.NoError(t, f.End(background, tx, true))
		}
		testbed.Unlock(t, held)
	}, "--innodb-rollback-on-timeout=ON", "--innodb-lock-wait-timeout=1")
}

// A server that was restarted gives the numbers of its sessions again. What ends the session of
// work that is given up ends no other.
func TestNoStrangerIsEnded(t *testing.T) {
	t.Parallel()
	eachOwnMySQL(t, func(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
		f := testbed.NewFixture(t, e, c)
		require.NoError(t, f.Locks.Install(background))
		strangers := make([]*sql.Conn, 100)
		err := f.Locks.Mutex(f.Key("a")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
			require.NoError(t, e.Kill())
			require.NoError(t, e.Restart(background))
			pool, err := sql.Open("mysql", e.DSN)
			require.NoError(t, err)
			t.Cleanup(func() { _ = pool.Close() })
			for i := range strangers {
				strangers[i], err = pool.Conn(background)
				require.NoError(t, err)
				t.Cleanup(func() { _ = strangers[i].Close() })
			}
			return nil
		})
		require.Error(t, err)
		for _, stranger := range strangers {
			require.NoError(t, stranger.PingContext(background))
		}
	})
}
