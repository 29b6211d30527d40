package engines

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/guarantees"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

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
