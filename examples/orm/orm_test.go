package orm

import (
	"context"
	"database/sql"
	"errors"
	"sync/atomic"
	"testing"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/lib/pq"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/servers"
)

type shop interface {
	Sell(ctx context.Context, sku string) error
	SellInTransaction(ctx context.Context, sku string) error
	Install(ctx context.Context) error
	Close() error
}

func TestGorm(t *testing.T) {
	g, err := NewGorm(open(t, servers.Postgres15, "pgx", nil))
	require.NoError(t, err)
	sells(t, g)
}

func TestBun(t *testing.T) { sells(t, NewBun(open(t, servers.Postgres15, "postgres", nil))) }

func TestEnt(t *testing.T) { sells(t, NewEnt(open(t, servers.MySQL, "mysql", nil))) }

func TestSQLC(t *testing.T) {
	var pool *pgxpool.Pool
	open(t, servers.Postgres15, "pgx", &pool)
	sells(t, NewSQLC(pool))
}

// open starts a server with goods on stock, and connects to it: also with a pool of pgx, if one is
// asked for.
func open(t *testing.T, kind servers.Kind, driver string, pool **pgxpool.Pool) *sql.DB {
	server, err := servers.Start(t.Context(), kind, servers.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	db := database.Open(t, driver, server.DSN)
	db.SetMaxOpenConns(4) // buyers who wait have them all: no second one for who has the lock
	for _, statement := range []string{
		"DROP TABLE IF EXISTS goods", "CREATE TABLE goods (sku varchar(20) PRIMARY KEY, stock int NOT NULL)",
		"INSERT INTO goods VALUES ('book', 20)",
	} {
		database.Exec(t, db, statement)
	}
	if pool != nil {
		*pool, err = pgxpool.New(t.Context(), server.DSN)
		require.NoError(t, err)
		t.Cleanup((*pool).Close)
	}
	return db
}

// sells has forty buyers, half in each way. Sold is what there was, and no more.
func sells(t *testing.T, s shop) {
	require.NoError(t, s.Install(t.Context()))
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	var buyers errgroup.Group
	var sold atomic.Int32
	for i := range 40 {
		buyers.Go(func() error {
			buy := s.Sell
			if i%2 == 0 {
				buy = s.SellInTransaction
			}
			err := buy(t.Context(), "book")
			if err == nil {
				sold.Add(1)
			}
			if errors.Is(err, ErrSoldOut) {
				return nil
			}
			return err
		})
	}
	require.NoError(t, buyers.Wait())
	require.EqualValues(t, 20, sold.Load())
}
