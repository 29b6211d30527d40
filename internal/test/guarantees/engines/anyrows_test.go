package engines

import (
	"context"
	"database/sql"
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// PostgreSQL locks the free rows that a Do takes. InnoDB locks what it reads: with an index on
// condition and order these rows as well, and where it sorts, all that match.
func TestAnyRowsOfAnIndex(t *testing.T) {
	t.Run("PostgreSQL", func(t *testing.T) { bothPostgres(t, besideAnyRows[pgx.Tx], besideAnyRows[*sql.Tx]) })
	t.Run("InnoDB", func(t *testing.T) {
		onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
			besideAnyRows(t, f.Engine, f.Client)
		})
	})
}

func besideAnyRows[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "id int primary key, state varchar(10) not null, due int not null")
	for id := range 40 {
		state := []string{"ready", "done"}[id%2]
		f.AsAdmin(t, fmt.Sprintf("INSERT INTO %s VALUES (%d, '%s', %[2]d)", table, id, state))
	}
	of := func(where string) *txlock.AnyRows[int64, Tx] { return txlock.Any[int64](f.Locks, table, "id", where) }
	// beside are the rows that others get while one has the first that is ready.
	beside := func(order string) (ready, done []int64) {
		t.Helper()
		get := func(state string) (got []int64) {
			err := of("state = '"+state+"' ORDER BY "+order).Limit(2).Do(background,
				func(_ context.Context, _ Tx, ids []int64) error { got = ids; return nil })
			if err != nil {
				require.ErrorIs(t, err, txlock.ErrNotAcquired)
			}
			return got
		}
		require.NoError(t, of("state = 'ready' ORDER BY "+order).Do(background,
			func(_ context.Context, _ Tx, ids []int64) error {
				require.Equal(t, []int64{0}, ids)
				ready, done = get("ready"), get("done")
				return nil
			}))
		return ready, done
	}
	for _, order := range []string{"due", "id"} {
		ready, done := beside(order)
		if order == "due" && !e.Postgres { // it sorts
			require.Empty(t, ready)
		} else {
			require.Equal(t, []int64{2, 4}, ready, order)
		}
		require.Equal(t, []int64{1, 3}, done, order)
	}
	f.AsAdmin(t, "CREATE INDEX queue_"+f.Label+" ON "+table+" (state, due)")
	ready, done := beside("due")
	require.Equal(t, []int64{2, 4}, ready)
	require.Equal(t, []int64{1, 3}, done)
}

// A free row that moves to another partition, because it is done, is none, and others are taken.
func TestAnyRowsOfPartitions(t *testing.T) {
	bothPostgres(t, movedAnyRow[pgx.Tx], movedAnyRow[*sql.Tx])
}

const ready = "state = 'ready' ORDER BY id"

func movedAnyRow[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	table := f.Label + "_parted"
	f.AsAdmin(t, "CREATE TABLE "+table+" (id int not null, state text not null) PARTITION BY LIST (state)")
	t.Cleanup(func() { f.AsAdmin(t, "DROP TABLE "+table) })
	for _, state := range []string{"ready", "done"} {
		f.AsAdmin(t, fmt.Sprintf("CREATE TABLE %s_%s PARTITION OF %[1]s FOR VALUES IN ('%[2]s')", table, state))
	}
	f.AsAdmin(t, "INSERT INTO "+table+" VALUES (1, 'ready'), (2, 'ready')")
	key := int32(crc32.ChecksumIEEE([]byte(table)) >> 1)
	gate := f.Begin(t, f.DSNFor(f.Label, "", nil), 0)
	require.NoError(t, f.Exec(background, gate, fmt.Sprintf("SELECT pg_advisory_xact_lock(%d)", key)))
	got := make(chan []int64, 1)
	over := testbed.Go(func() error {
		where := fmt.Sprintf("(SELECT pg_advisory_xact_lock_shared(%d) IS NOT NULL) AND "+ready, key)
		return txlock.Any[int64](f.Locks, table, "id", where).Do(background,
			func(_ context.Context, _ Tx, ids []int64) error { got <- ids; return nil })
	})
	eventually.True(t, "it waits, with its snapshot", func() bool {
		return f.Total(t, fmt.Sprintf("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'advisory' AND "+
			"objid = %d AND objsubid = 1", key)) == 1
	})
	f.AsAdmin(t, "UPDATE "+table+" SET state = 'done' WHERE id = 1")
	require.NoError(t, f.End(background, gate, true))
	require.NoError(t, testbed.Receive(t, over))
	require.Equal(t, []int64{2}, <-got)
}

// Free rows of a table in which FOR UPDATE locks nothing are refused.
func TestAnyRowsUnlocked(t *testing.T) {
	onMySQL(t, testbed.MySQLSQL, func(t *testing.T, f *testbed.Fixture[*sql.Tx]) {
		things := f.MakeTable(t, "id int primary key")
		f.AsAdmin(t, "INSERT INTO "+things+" VALUES (1)")
		f.AsAdmin(t, "CREATE VIEW "+f.Label+".seen AS SELECT * FROM "+things)
		f.AsAdmin(t, "CREATE TABLE "+f.Label+".plain ENGINE=MyISAM AS SELECT * FROM "+things)
		work := func(context.Context, *sql.Tx, []int64) error { return nil }
		for _, name := range []string{".seen", ".plain"} {
			rows := txlock.Any[int64](f.Locks, f.Label+name, "id", "id > 0")
			require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, _ *sql.Tx) error {
				require.ErrorIs(t, rows.Do(ctx, work), txlock.ErrUnsafeEngine, name)
				return nil
			}))
			require.ErrorIs(t, rows.Do(background, work), txlock.ErrUnsafeEngine, name)
		}
	})
}
