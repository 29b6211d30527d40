package inspection

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// Work that prepares its transaction has lost the lock, which the transaction keeps: Inspect shows
// its name. Break says how it ends.
func TestInspectPrepared(t *testing.T) {
	t.Parallel()
	server, err := servers.Start(background, servers.Postgres18,
		servers.Options{Settings: []string{"-c", "max_prepared_transactions=4"}})
	require.NoError(t, err)
	e := testbed.Owned(t, server)
	f := testbed.NewFixture(t, e, testbed.PostgresPgx[0])
	table := f.MakeTable(t, "id int primary key")
	f.AsAdmin(t, "INSERT INTO "+table+" VALUES (1)")
	key, name := f.Key("prepared"), f.Label+"'s"
	quoted := "'" + f.Label + "''s'"
	before := time.Now().Add(-time.Minute)
	require.ErrorIs(t, f.Locks.Mutex(key).Do(background, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := f.Locks.Rows(table, "id", 1).Lock(ctx); err != nil {
			return err
		}
		return f.Exec(ctx, tx, "PREPARE TRANSACTION "+quoted)
	}), txlock.ErrLost)
	ended := false
	defer func() {
		if !ended {
			f.AsAdmin(t, "ROLLBACK PREPARED "+quoted)
		}
	}()
	granted := f.Queue(t, 1, key)
	row := testbed.LockLater(f.Locks.Rows(table, "id", 1))
	f.Waiters(t, 2)
	for _, h := range []txlock.Holding{f.Look(t, key)[0], rowOf(t, f, table, "1")} {
		require.Len(t, h.Waiters, 1)
		require.NotNil(t, h.Holder)
		require.Empty(t, h.Holder.ID)
		require.Equal(t, name, h.Holder.Prepared)
		require.NotEmpty(t, h.Holder.User)
		require.NotEmpty(t, h.Holder.Database)
		require.True(t, h.Holder.Since.After(before))
		require.Positive(t, h.Holder.For)
		require.ErrorContains(t, f.Locks.Break(background, h), `the prepared transaction "`+name+`" has it`)
	}
	ended = true
	f.AsAdmin(t, "ROLLBACK PREPARED "+quoted)
	require.NoError(t, (<-granted).Unlock(background))
	require.NoError(t, <-row)
	require.Empty(t, f.Look(t, key))
}

// silent is a driver that does not show who holds locks.
type silent struct{ dialects.Driver[*sql.Tx] }

func TestInspectWithoutInspector(t *testing.T) {
	t.Parallel()
	f := innodbFixture(t, testbed.Engines[len(testbed.Engines)-1])
	driver, p := f.Connect(t, f.DSNFor(f.Label, "", nil), 1)
	defer p.Close()
	locks := txlock.New[*sql.Tx](silent{driver}, txlock.WithTable(f.Table()))
	_, err := locks.Inspect(background, f.Key("k"))
	require.ErrorContains(t, err, "does not show who holds locks")
	require.ErrorContains(t, locks.Break(background, txlock.Holding{}), "does not show who holds locks")
	lock, err := locks.Mutex(f.Key("k")).Lock(background)
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(background))
}
