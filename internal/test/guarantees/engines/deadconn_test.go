package engines

import (
	"context"
	"database/sql"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/guarantees"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// A call takes another connection when those of the pool have just died, and takes no dead one
// twice.
func TestDeadConnectionsAreTakenOnce(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		for _, c := range testbed.PostgresPgx {
			t.Run(c.Name, func(t *testing.T) { deadAreTakenOnce(t, e, c) })
		}
		for _, c := range append(testbed.PostgresSQL, testbed.SQLFromPool()) {
			t.Run(c.Name, func(t *testing.T) { deadAreTakenOnce(t, e, c) })
		}
	})
}

func deadAreTakenOnce[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const size = 4
	f := testbed.NewSizedFixture(t, e, c, size, "")
	f.Warm(t, size-1)
	f.Unused(t)
	f.KillSessions(t)
	taken := func() int {
		if f.Pool.Taken == nil {
			return 0
		}
		return f.Pool.Taken()
	}
	before := taken()
	ctx, cancel := context.WithTimeout(background, 10*time.Second)
	defer cancel()
	lock, err := f.Locks.Mutex(f.Key("a")).Lock(ctx)
	require.NoError(t, err)
	require.LessOrEqual(t, taken()-before, 2*size)
	require.NoError(t, lock.Unlock(background))
}

// A server that ends each session behind its login is an error, and is not asked without end.
func TestConnectionsThatAreBornDead(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		logins := 0
		born := func() *pgxpool.Pool {
			config, err := pgxpool.ParseConfig(f.DSNFor(f.Label, "", nil))
			require.NoError(t, err)
			config.MaxConns, logins = 4, 0
			config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
				logins++
				_, err := f.Admin.ExecContext(ctx, "SELECT pg_terminate_backend($1, 5000)", conn.PgConn().PID())
				return err
			}
			pool, err := pgxpool.NewWithConfig(background, config)
			require.NoError(t, err)
			t.Cleanup(pool.Close)
			return pool
		}
		ctx, cancel := context.WithTimeout(background, time.Minute)
		defer cancel()
		refused := func(err error) {
			require.ErrorContains(t, err, "connect")
			require.NoError(t, ctx.Err())
			require.Less(t, logins, 200)
		}
		_, err := txlock.New(postgres.New(born()), txlock.WithTable(f.Table())).Mutex("a").Lock(ctx)
		refused(err)
		db := stdlib.OpenDBFromPool(born())
		_, err = txlock.New(postgres.NewSQL(db), txlock.WithTable(f.Table())).Mutex("a").Lock(ctx)
		refused(err)
		require.NoError(t, db.Close())
	})
}

// A sql.DB whose connections are those of a pgxpool.Pool keeps what rests on how they end.
func TestSQLFromPool(t *testing.T) {
	t.Parallel()
	shown := map[string]func(*testing.T, *testbed.Engine, testbed.Client[*sql.Tx]){
		"no setting outlives":  guarantees.SettingsEnd[*sql.Tx],
		"killed":               guarantees.KilledConnection[*sql.Tx],
		"cut":                  guarantees.CutConnection[*sql.Tx],
		"self-ended":           guarantees.SelfEnded[*sql.Tx],
		"ends":                 guarantees.DoEnds[*sql.Tx],
		"cancelled":            guarantees.CancelledWait[*sql.Tx],
		"cancelled in work":    guarantees.ContextEndsInWork[*sql.Tx],
		"caller's transaction": guarantees.CallersTransaction[*sql.Tx],
		"clean":                guarantees.CleanPool[*sql.Tx],
		"rolled back":          guarantees.RolledBack[*sql.Tx],
	}
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		for says, show := range shown {
			t.Run(says, func(t *testing.T) {
				t.Parallel()
				show(t, e, testbed.SQLFromPool())
			})
		}
		t.Run("refused COMMIT", func(t *testing.T) {
			t.Parallel()
			refusedCommit(t, e, testbed.SQLFromPool())
		})
	})
}

// lastWords has some tries for a permit get what a pooler may hand on: that the server has ended a
// session.
type lastWords[Tx any] struct {
	dialects.Driver[Tx]
	tries, from, to int64
	over            chan struct{}
}

func (d *lastWords[Tx]) Begin(ctx context.Context, r dialects.Request) (dialects.Session[Tx], dialects.Grant, error) {
	if r.AnyOne != "" && r.Try {
		n := atomic.AddInt64(&d.tries, 1)
		if n == d.to+2 {
			close(d.over)
		}
		if n >= d.from && n <= d.to {
			return nil, dialects.Grant{}, io.ErrUnexpectedEOF
		}
	}
	return d.Driver.Begin(ctx, r)
}

// One connection that turns out to be dead costs a waiter for a permit nothing, two in a row do.
func TestPermitOverDeadConnection(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) { permitOverDead(t, e, testbed.PgxOpened()) })
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) { permitOverDead(t, e, testbed.MySQLSQL[0]) })
}

func permitOverDead[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	held, err := f.Locks.Semaphore(f.Key("api"), 1).Lock(background)
	require.NoError(t, err)
	wait := func(from, to int64) (d *lastWords[Tx], granted <-chan error) {
		driver, p := c.Connect(t, f.DSNFor(f.Label, "", nil), 4)
		t.Cleanup(p.Close)
		d = &lastWords[Tx]{Driver: driver, from: from, to: to, over: make(chan struct{})}
		locks, answer := txlock.New(d, txlock.WithTable(f.Table())), make(chan error, 1)
		t.Cleanup(func() { require.NoError(t, locks.Close()) })
		go func() {
			answer <- locks.Semaphore(f.Key("api"), 1).Do(background, func(context.Context, Tx) error { return nil })
		}()
		return d, answer
	}
	_, failed := wait(3, 4)
	require.ErrorIs(t, testbed.Receive(t, failed), io.ErrUnexpectedEOF)
	d, granted := wait(3, 3)
	testbed.Receive(t, d.over)
	require.NoError(t, held.Unlock(background))
	require.NoError(t, testbed.Receive(t, granted))
}

// LockTx on a connection to which nothing can be written is a loss.
func TestLockTxOnDeadConnection(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		f := testbed.NewFixture(t, e, testbed.PgxOpened())
		f.Free(t, f.Key("a"))
		tx := f.Guest(t)
		require.NoError(t, tx.Conn().PgConn().Conn().(*net.TCPConn).CloseWrite())
		require.ErrorIs(t, f.Locks.Mutex(f.Key("a")).LockTx(background, tx), txlock.ErrLost)
	})
}
