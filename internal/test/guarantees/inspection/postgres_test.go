package inspection

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

// PostgreSQL's picture comes from several views, and its rows say little about who locked them.
func TestInspectPostgres(t *testing.T) {
	t.Parallel()
	testbed.Each(t, testbed.AllPostgres(), func(t *testing.T, e *testbed.Engine) {
		t.Run("of one moment", func(t *testing.T) { pictureOfOneMoment(t, e) })
		t.Run("work that waits for another row", func(t *testing.T) { workWaitsElsewhere(t, e) })
		t.Run("what a savepoint released", func(t *testing.T) { savepointReleased(t, e) })
		t.Run("keys that are too long", func(t *testing.T) { longKeys(t, e) })
		t.Run("a row that a stranger holds", func(t *testing.T) {
			strangerHolds(t, e, testbed.PostgresPgx[0])
			strangerHolds(t, e, testbed.PostgresSQL[0])
		})
		t.Run("a database that is a copy", func(t *testing.T) { copiedDatabase(t, e) })
	})
}

// A session that takes one lock after the other is never shown with both.
func pictureOfOneMoment(t *testing.T, e *testbed.Engine) {
	f := testbed.NewFixture(t, e, testbed.PostgresPgx[0])
	one := testbed.NewSizedFixture(t, e, testbed.PostgresPgx[0], 1, "")
	a, b := f.Key("a"), f.Key("b")
	ctx, stop := context.WithCancel(background)
	done := testbed.Go(func() error {
		for ctx.Err() == nil {
			for _, key := range []string{a, b} {
				if err := testbed.Cycle(background, one.Locks.Mutex(key)); err != nil {
					return err
				}
			}
		}
		return nil
	})
	seen := 0
	for range 300 {
		holdings := f.Look(t, a, b)
		require.LessOrEqual(t, len(holdings), 1)
		seen += len(holdings)
	}
	stop()
	require.NoError(t, <-done)
	require.NotZero(t, seen)
}

// A holder whose work waits for another row of the table is a holder.
func workWaitsElsewhere(t *testing.T, e *testbed.Engine) {
	f := testbed.NewFixture(t, e, testbed.PostgresPgx[0])
	table := f.MakeTable(t, "id int primary key, n int", "(1, 0), (99, 0)")
	stranger := f.Begin(t, f.DSNFor(f.Label+"s", "", nil), 0)
	require.NoError(t, f.Exec(background, stranger, "UPDATE "+table+" SET n = 1 WHERE id = 99"))
	session := make(chan string, 1)
	done := testbed.Go(func() error {
		return f.Locks.Rows(table, "id", 1).Do(background, func(ctx context.Context, tx pgx.Tx) error {
			id, err := f.Query(ctx, tx, f.SessionSQL())
			session <- id
			return errors.Join(err, f.Exec(ctx, tx, "UPDATE "+table+" SET n = 2 WHERE id = 99"))
		})
	})
	holder := <-session
	f.Waiters(t, 1)
	shown := rowOf(t, f, table, "1")
	require.Empty(t, shown.Waiters)
	require.NotNil(t, shown.Holder)
	require.Equal(t, holder, shown.Holder.ID)
	require.Contains(t, shown.Holder.Statement, "UPDATE")
	require.NoError(t, f.End(background, stranger, false))
	require.NoError(t, <-done)
}

// rowOf is what Inspect shows of a row of the caller's.
func rowOf[Tx any](t *testing.T, f *testbed.Fixture[Tx], table, value string) txlock.Holding {
	t.Helper()
	for _, h := range f.LookAtRows(t) {
		if h.Table == table && h.Row == value {
			return h
		}
	}
	require.Fail(t, "the row is not shown")
	return txlock.Holding{}
}

// A row held by a client that does not use txlock shows that holder, and a caller of txlock as its
// waiter: alone, and in a transaction of its own.
func strangerHolds[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, table := testbed.NewTable(t, e, c, "id int primary key", "(1)")
	stranger := f.Begin(t, f.DSNFor(f.Label+"s", "", nil), 0)
	id := must.Get(f.Query(background, stranger, f.SessionSQL()))(t)
	require.NoError(t, f.Exec(background, stranger, "SELECT FROM "+table+" WHERE id = 1 FOR UPDATE"))
	row, tx := f.Locks.Rows(table, "id", 1), f.Guest(t)
	for _, wait := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := row.Lock(ctx); return err },
		func(ctx context.Context) error { return row.LockTx(ctx, tx) },
	} {
		ctx, cancel := context.WithCancel(background)
		ended := testbed.Go(func() error { return wait(ctx) })
		f.Waiters(t, 1)
		shown := rowOf(t, f, table, "1")
		require.NotNil(t, shown.Holder)
		require.Equal(t, id, shown.Holder.ID)
		require.Len(t, shown.Waiters, 1)
		cancel()
		require.ErrorIs(t, testbed.Receive(t, ended), context.Canceled)
	}
	require.NoError(t, f.End(background, tx, true))
	require.NoError(t, f.End(background, stranger, false))
}

// Break does not end a session for a lock that was released with a savepoint.
func savepointReleased(t *testing.T, e *testbed.Engine) {
	f := testbed.NewFixture(t, e, testbed.PostgresPgx[0])
	deep := f.Key("deep")
	require.NoError(t, f.Locks.Mutex(f.Key("outer")).Do(background, func(ctx context.Context, _ pgx.Tx) error {
		var shown []txlock.Holding
		require.ErrorIs(t, f.Locks.Mutex(f.Key("outer")).Do(ctx, func(ctx context.Context, _ pgx.Tx) error {
			require.NoError(t, testbed.ErrorOf(f.Locks.Mutex(deep).Lock(ctx)))
			shown = f.Look(t, deep)
			return errWork
		}), errWork)
		require.Len(t, shown, 1)
		require.ErrorIs(t, f.Locks.Break(background, shown[0]), txlock.ErrNotHeld)
		return context.Cause(ctx)
	}))
}

// Of a key that is too long, the beginning shows. No other lock of the session shows under it.
func longKeys(t *testing.T, e *testbed.Engine) {
	f := testbed.NewFixture(t, e, testbed.PostgresPgx[0])
	outer, inner := f.Key(strings.Repeat("long", 20)), f.Key("inner")
	lock := testbed.Lock(t, f.Locks.Mutex(outer))
	before := f.Look(t, outer)[0]
	beginning, cut := strings.CutSuffix(before.Key, "…")
	require.True(t, cut)
	require.NotEmpty(t, beginning)
	require.True(t, strings.HasPrefix(outer, beginning))

	nested := testbed.LockIn(t, lock.Context(), f.Locks.Mutex(inner))
	for _, h := range f.Look(t, outer, inner) {
		require.NotNil(t, h.Holder)
		require.Empty(t, h.Key, "which of the two it is is not known")
		require.Equal(t, before.Holder.Since, h.Holder.Since)
	}
	testbed.Unlock(t, nested, lock)
}

// The tables of a copied database have the same numbers. What is locked in one database does not
// show in the other.
func copiedDatabase(t *testing.T, e *testbed.Engine) {
	c, original := testbed.PostgresPgx[0], testbed.NewLabel()
	copied := original + "_copied"
	dsn := func(database string) string {
		u := must.Get(url.Parse(e.DSN))(t)
		u.Path = "/" + database
		return u.String()
	}
	create := func(statement, database string) {
		e.AsAdmin(t, statement)
		t.Cleanup(func() { e.AsAdmin(t, "DROP DATABASE "+database+" WITH (FORCE)") })
	}
	create("CREATE DATABASE "+original, original)
	driver, pool := c.Connect(t, dsn(original), 2)
	require.NoError(t, txlock.New(driver).Install(background))
	pool.Close() // a database with sessions cannot be copied
	create("CREATE DATABASE "+copied+" TEMPLATE "+original, copied)
	here, there := c.Locker(t, dsn(original), 4), c.Locker(t, dsn(copied), 4)

	held := testbed.Lock(t, here.Mutex("a"))
	waits := testbed.LockLater(here.Mutex("a"))
	eventually.True(t, "it is shown where it is", func() bool {
		shown := must.Get(here.Inspect(background))(t)
		return len(shown) == 1 && shown[0].Holder != nil && len(shown[0].Waiters) == 1
	})
	require.Empty(t, must.Get(there.Inspect(background))(t))
	testbed.Unlock(t, held)
	require.NoError(t, testbed.Receive(t, waits))
}

// Work that prepares its transaction has lost the lock, which the transaction keeps: Inspect shows
// its name. Break says how it ends.
func TestInspectPrepared(t *testing.T) {
	t.Parallel()
	e := testbed.Own(t, servers.Postgres18, "-c", "max_prepared_transactions=4")
	f := testbed.NewFixture(t, e, testbed.PostgresPgx[0])
	table := f.MakeTable(t, "id int primary key", "(1)")
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
