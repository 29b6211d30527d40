package engines

import (
	"context"
	"database/sql"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
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
	driver, pool := c.Connect(t, ordinaryUser(t, f).FormatDSN(), 1) // the administrator may write also then
	defer pool.Close()
	locks := txlock.New(driver, txlock.WithTable(e.Table()))
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
				proxy, err := wire.Listen(e.Address())
				require.NoError(t, err)
				defer proxy.Close()
				f := testbed.NewSizedFixture(t, e, c, 2, proxy.Addr())
				table := f.MakeTable(t, "id int primary key")
				err = f.Locks.Mutex(f.Key("broken")).Do(background, func(ctx context.Context, tx *sql.Tx) error {
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
	proxy, err := wire.Listen(e.Address())
	require.NoError(t, err)
	defer proxy.Close()
	f := testbed.NewSizedFixture(t, e, c, 2, proxy.Addr())
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
