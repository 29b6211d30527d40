package txlock_test

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/servers"
)

// What Inspect and Break show and do for a user with few rights, as their comments say.
func TestGrants(t *testing.T) {
	for _, e := range engines {
		t.Run(e.Name, func(t *testing.T) {
			switch {
			case e.postgres:
				grantsOnPostgres(t, e)
			case e.Kind == servers.MariaDB:
				grantsOnMySQL(t, e, "GRANT PROCESS ON *.* TO %s")
			default:
				grantsOnMySQL(t, e, "GRANT SELECT ON performance_schema.* TO %s")
			}
		})
	}
}

// visitor is a Locker of a user that may lock, and no more.
func visitor[Tx any](t *testing.T, f *fixture[Tx], dsn string) *txlock.Locker[Tx] {
	t.Helper()
	driver, p := f.connect(t, dsn, 8)
	locks := txlock.New(driver, txlock.WithTable(f.table()))
	t.Cleanup(func() { require.NoError(t, locks.Close()); p.close() })
	lock, err := locks.Mutex(f.key("may lock")).Lock(background)
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(background))
	return locks
}

func grantsOnPostgres(t *testing.T, e *engine) {
	f := newFixture(t, e, postgresPgx[0])
	role := f.label
	f.admitted(t, "CREATE ROLE "+role+" LOGIN")
	f.admitted(t, "GRANT SELECT, UPDATE ON "+f.table()+" TO "+role)
	t.Cleanup(func() {
		f.admitted(t, "DROP OWNED BY "+role)
		f.admitted(t, "DROP ROLE "+role)
	})
	u, err := url.Parse(f.dsn(f.label+"v", "", nil))
	require.NoError(t, err)
	u.User = url.User(role)
	locks := visitor(t, f, u.String())

	key := f.key("k")
	session, release := f.holdInDo(t, key)
	granted := f.queue(t, 2, key)
	h, err := locks.Inspect(background, key)
	require.NoError(t, err)
	require.Len(t, h, 1)
	require.Equal(t, key, h[0].Key)
	require.Equal(t, session, h[0].Holder.ID)
	require.Equal(t, f.label, h[0].Holder.Application)
	require.NotEmpty(t, h[0].Holder.User)
	require.NotZero(t, h[0].Holder.Process)
	require.Len(t, h[0].Waiters, 2)
	require.Greater(t, h[0].Waiters[0].For, h[0].Waiters[1].For)
	require.Empty(t, h[0].Holder.Statement)
	require.Empty(t, h[0].Holder.Host)
	require.Zero(t, h[0].Holder.Since)
	err = locks.Break(background, h[0])
	require.ErrorContains(t, err, "pg_signal_backend")

	f.admitted(t, "GRANT pg_read_all_stats TO "+role)
	h, err = locks.Inspect(background, key)
	require.NoError(t, err)
	require.NotEmpty(t, h[0].Holder.Statement)
	require.NotEmpty(t, h[0].Holder.Host)
	require.WithinDuration(t, time.Now(), h[0].Holder.Since, 10*time.Second)
	require.NoError(t, release())
	for range 2 {
		require.NoError(t, (<-granted).Unlock(background))
	}
}

func grantsOnMySQL(t *testing.T, e *engine, views string) {
	f := newFixture(t, e, mysqlSQL[1])
	user := "'" + f.label + "'@'%'"
	f.admitted(t, "CREATE USER "+user)
	t.Cleanup(func() { f.admitted(t, "DROP USER "+user) })
	f.admitted(t, "GRANT SELECT, UPDATE ON "+f.table()+" TO "+user)
	f.admitted(t, "GRANT ALL ON "+f.label+".* TO "+user)
	config, err := mysql.ParseDSN(f.dsn(f.label, "", nil))
	require.NoError(t, err)
	config.User = f.label
	locks := visitor(t, f, config.FormatDSN())

	key := f.key("k")
	session, release := f.holdInDo(t, key)
	granted := f.queue(t, 2, key)
	look := func() (h []txlock.Holding, err error) {
		f.apart(func() { h, err = locks.Inspect(background, key) })
		return h, err
	}
	_, err = look()
	require.ErrorContains(t, err, views[:len(views)-len(" TO %s")])
	f.admitted(t, fmt.Sprintf(views, user))
	locks = visitor(t, f, config.FormatDSN()) // a session has the rights with which it began
	h, err := look()
	require.NoError(t, err)
	require.Len(t, h, 1)
	require.Equal(t, key, h[0].Key)
	require.Equal(t, session, h[0].Holder.ID)
	require.NotEmpty(t, h[0].Holder.User)
	require.WithinDuration(t, time.Now(), h[0].Holder.Since, 10*time.Second)
	require.Len(t, h[0].Waiters, 2)
	require.Contains(t, h[0].Waiters[0].Statement, "FOR UPDATE")
	f.apart(func() { err = locks.Break(background, h[0]) })
	require.ErrorContains(t, err, "CONNECTION_ADMIN")
	require.NoError(t, release())
	for range 2 {
		require.NoError(t, (<-granted).Unlock(background))
	}
}

// Showing the key does not make a statement of its own of each key.
func TestKeysShareStatements(t *testing.T) {
	for _, e := range engines {
		if !e.postgres {
			continue // nothing is prepared there
		}
		t.Run(e.Name, func(t *testing.T) {
			for _, c := range postgresPgx {
				if c.name != pgxOnPool("simple protocol").name {
					t.Run(c.name, func(t *testing.T) { keysShareStatements(t, e, c) })
				}
			}
		})
	}
}

func keysShareStatements(t *testing.T, e *engine, c client[pgx.Tx]) {
	f := newSizedFixture(t, e, c, 1, "")
	prepared := func() (n string) {
		require.NoError(t, f.locks.Mutex(f.key("counts")).Do(
			background, func(ctx context.Context, tx pgx.Tx) (err error) {
				n, err = f.query(ctx, tx, "SELECT count(*) FROM pg_prepared_statements")
				return err
			}))
		return n
	}
	lockUnlock := func(key string) {
		lock, err := f.locks.Mutex(key).Lock(background)
		require.NoError(t, err)
		require.NoError(t, lock.Unlock(background))
	}
	lockUnlock(f.key("first"))
	prepared()
	before := prepared()
	for i := range 20 {
		lockUnlock(f.key(strconv.Itoa(i)))
	}
	require.Equal(t, before, prepared())
	require.NotEqual(t, "0", before)
}
