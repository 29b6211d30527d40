package main

import (
	"context"
	"errors"
	"net/url"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
)

type postgresShop struct {
	desk[pgx.Tx]
	pool *pgxpool.Pool // for what needs no lock
}

func connectPostgres(ctx context.Context, dsn string) (shop, error) {
	address, err := url.Parse(dsn)
	if err != nil {
		return nil, err
	}
	settings := address.Query()
	settings.Set("pool_max_conns", strconv.Itoa(workers))
	address.RawQuery = settings.Encode()
	pool, err := pgxpool.New(ctx, address.String())
	if err != nil {
		return nil, err
	}
	driver, err := postgres.Open(ctx, address.String())
	if err != nil {
		pool.Close()
		return nil, err
	}
	locks := txlock.New(driver, txlock.WithTable("demo_slots"))
	return &postgresShop{desk[pgx.Tx]{locks, postgresLedger{pool}}, pool}, nil
}

func (s *postgresShop) Close() error {
	s.pool.Close()
	return s.locks.Close()
}

// No table has a constraint that would refuse an error: the audit is to find it.
const postgresTables = dropTables + `;
CREATE TABLE demo_inventory (sku text PRIMARY KEY, stock integer NOT NULL);
CREATE TABLE demo_bookings (order_id text NOT NULL, sku text NOT NULL, quantity integer NOT NULL);
CREATE TABLE demo_decisions (order_id text NOT NULL, decision text NOT NULL);
CREATE INDEX ON demo_decisions (order_id)`

func (s *postgresShop) open(ctx context.Context, stock map[string]int) error {
	if err := s.locks.Install(ctx); err != nil {
		return err
	}
	if _, err := s.pool.Exec(ctx, postgresTables); err != nil {
		return err
	}
	rows := make([][]any, 0, len(stock))
	for sku, quantity := range stock {
		rows = append(rows, []any{sku, quantity})
	}
	_, err := s.pool.CopyFrom(ctx, pgx.Identifier{"demo_inventory"}, []string{"sku", "stock"}, pgx.CopyFromRows(rows))
	return err
}

func (s *postgresShop) dropTables(ctx context.Context) error {
	_, err := s.pool.Exec(ctx, dropTables+", demo_slots")
	return err
}

func (s *postgresShop) books(ctx context.Context) (b books, err error) {
	inventory, err := s.pool.Query(ctx, "SELECT sku, stock FROM demo_inventory")
	if err != nil {
		return b, err
	}
	if b.stock, err = stockOf(inventory); err != nil {
		return b, err
	}
	bookings, err := s.pool.Query(ctx, "SELECT order_id, sku, quantity FROM demo_bookings")
	if err != nil {
		return b, err
	}
	if b.bookings, err = pgx.CollectRows(bookings, pgx.RowToStructByPos[booking]); err != nil {
		return b, err
	}
	decisions, err := s.pool.Query(ctx, "SELECT order_id, decision FROM demo_decisions")
	if err != nil {
		return b, err
	}
	b.decisions, err = pgx.CollectRows(decisions, pgx.RowToStructByPos[decision])
	return b, err
}

type postgresLedger struct{ pool *pgxpool.Pool }

func (l postgresLedger) look(ctx context.Context, tx pgx.Tx, o order) (decided bool, stock map[string]int, err error) {
	batch := &pgx.Batch{}
	batch.Queue("SELECT EXISTS (SELECT FROM demo_decisions WHERE order_id = $1)", o.id).QueryRow(func(row pgx.Row) error {
		return row.Scan(&decided)
	})
	batch.Queue("SELECT sku, stock FROM demo_inventory WHERE sku = ANY ($1)", o.skus()).Query(func(rows pgx.Rows) (err error) {
		stock, err = stockOf(rows)
		return err
	})
	err = tx.SendBatch(ctx, batch).Close()
	return decided, stock, err
}

func (l postgresLedger) book(ctx context.Context, tx pgx.Tx, o order) error {
	batch := &pgx.Batch{}
	// One UPDATE for all lines would go through them in the order that its plan happens to have, and without a lock most of
	// these would end in a deadlock.
	for _, line := range o.lines {
		batch.Queue("UPDATE demo_inventory SET stock = stock - $2 WHERE sku = $1", line.sku, line.quantity)
	}
	batch.Queue(`INSERT INTO demo_bookings (order_id, sku, quantity)
		SELECT $1::text, line.sku, line.quantity FROM unnest($2::text[], $3::integer[]) AS line (sku, quantity)`,
		o.id, o.skus(), o.quantities())
	batch.Queue("INSERT INTO demo_decisions (order_id, decision) VALUES ($1, $2)", o.id, booked)
	return tx.SendBatch(ctx, batch).Close()
}

func (l postgresLedger) refuse(ctx context.Context, tx pgx.Tx, o order) error {
	_, err := tx.Exec(ctx, "INSERT INTO demo_decisions (order_id, decision) VALUES ($1, $2)", o.id, refused)
	return err
}

func (l postgresLedger) transact(ctx context.Context, work func(ctx context.Context, tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, l.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return work(ctx, tx)
	})
}

func (l postgresLedger) deadlocked(err error) bool {
	const deadlockDetected = "40P01"
	var answer *pgconn.PgError
	return errors.As(err, &answer) && answer.Code == deadlockDetected
}

func stockOf(rows pgx.Rows) (map[string]int, error) {
	stock := make(map[string]int)
	var sku string
	var quantity int
	_, err := pgx.ForEachRow(rows, []any{&sku, &quantity}, func() error {
		stock[sku] = quantity
		return nil
	})
	return stock, err
}
