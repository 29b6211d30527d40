package shop_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/shop"
)

var background = context.Background()

func start(t *testing.T, kind servers.Kind) (dsn string) {
	t.Helper()
	server, err := servers.Start(background, kind, servers.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return server.DSN
}

func open(t *testing.T, driverName, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(driverName, dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}

func TestManyOrdersAreDecidedAsOneByOne(t *testing.T) {
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		manyAsOneByOne(t, shop.NewMySQL(open(t, "mysql", start(t, servers.MySQL))))
	})
	t.Run("MariaDB", func(t *testing.T) {
		t.Parallel()
		manyAsOneByOne(t, shop.NewMySQL(open(t, "mysql", start(t, servers.MariaDB))))
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		dsn := start(t, servers.Postgres())
		pool, err := pgxpool.New(background, dsn)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		manyAsOneByOne(t, shop.NewPostgres(pool))
		manyAsOneByOne(t, shop.NewPostgresSQL(open(t, "pgx", dsn)))
	})
}

func manyAsOneByOne[Tx any](t *testing.T, l shop.Ledger[Tx]) {
	orders, err := shop.Load(1)
	require.NoError(t, err)
	orders = append(orders[:60], orders[:40]...) // some a second time
	opening := shop.StockFor(orders)

	require.NoError(t, l.Open(background, opening))
	var one []shop.Outcome
	for _, o := range orders {
		require.NoError(t, l.Transact(background, func(ctx context.Context, tx Tx) error {
			outcome, err := shop.Decide(ctx, l, tx, o)
			one = append(one, outcome)
			return err
		}))
	}
	expected, err := l.Books(background)
	require.NoError(t, err)

	require.NoError(t, l.Open(background, opening))
	var many []shop.Outcome
	for _, part := range [][]shop.Order{orders[:1], orders[1:30], orders[30:80], orders[80:]} {
		require.NoError(t, l.Transact(background, func(ctx context.Context, tx Tx) error {
			outcomes, err := shop.DecideAll(ctx, l, tx, part)
			many = append(many, outcomes...)
			return err
		}))
	}
	books, err := l.Books(background)
	require.NoError(t, err)
	require.Equal(t, one, many)
	require.Contains(t, one, shop.Refused)
	require.Equal(t, expected.Stock, books.Stock)
	require.ElementsMatch(t, expected.Bookings, books.Bookings)
	require.ElementsMatch(t, expected.Decisions, books.Decisions)
	require.NoError(t, l.Drop(background))
}
