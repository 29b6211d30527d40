package shop

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// NewPostgres is a shop on PostgreSQL that uses pgx.
func NewPostgres(pool *pgxpool.Pool) Ledger[pgx.Tx] { return postgresLedger{pool} }

type postgresLedger struct{ pool *pgxpool.Pool }

// No table has a constraint that would prevent an error, because the audit must find it.
const postgresTables = dropTables + `;
CREATE TABLE shop_inventory (sku text PRIMARY KEY, stock integer NOT NULL);
CREATE TABLE shop_bookings (order_id text NOT NULL, sku text NOT NULL, quantity integer NOT NULL);
CREATE TABLE shop_decisions (order_id text NOT NULL, decision text NOT NULL);
CREATE INDEX ON shop_decisions (order_id)`

func (l postgresLedger) Open(ctx context.Context, stock map[string]int) error {
	if _, err := l.pool.Exec(ctx, postgresTables); err != nil {
		return err
	}
	rows := make([][]any, 0, len(stock))
	for sku, quantity := range stock {
		rows = append(rows, []any{sku, quantity})
	}
	_, err := l.pool.CopyFrom(ctx, pgx.Identifier{Inventory}, []string{InventoryColumn, "stock"},
		pgx.CopyFromRows(rows))
	return err
}

func (l postgresLedger) Drop(ctx context.Context, others ...string) error {
	_, err := l.pool.Exec(ctx, dropping(others))
	return err
}

func (l postgresLedger) Books(ctx context.Context) (b Books, err error) {
	inventory, err := l.pool.Query(ctx, "SELECT sku, stock FROM shop_inventory")
	if err != nil {
		return b, err
	}
	if b.Stock, err = stockOf(inventory); err != nil {
		return b, err
	}
	bookings, err := l.pool.Query(ctx, "SELECT order_id, sku, quantity FROM shop_bookings")
	if err != nil {
		return b, err
	}
	if b.Bookings, err = pgx.CollectRows(bookings, pgx.RowToStructByPos[Booking]); err != nil {
		return b, err
	}
	decisions, err := l.pool.Query(ctx, "SELECT order_id, decision FROM shop_decisions")
	if err != nil {
		return b, err
	}
	b.Decisions, err = pgx.CollectRows(decisions, pgx.RowToStructByPos[Decision])
	return b, err
}

func (l postgresLedger) look(ctx context.Context, tx pgx.Tx, orders []Order) (
	decided map[string]bool, stock map[string]int, err error,
) {
	decided = make(map[string]bool)
	batch := &pgx.Batch{}
	batch.Queue("SELECT order_id FROM shop_decisions WHERE order_id = ANY ($1)", ids(orders)).Query(
		func(rows pgx.Rows) error {
			var id string
			_, err := pgx.ForEachRow(rows, []any{&id}, func() error {
				decided[id] = true
				return nil
			})
			return err
		})
	batch.Queue("SELECT sku, stock FROM shop_inventory WHERE sku = ANY ($1)", SKUs(orders)).Query(
		func(rows pgx.Rows) (err error) {
			stock, err = stockOf(rows)
			return err
		})
	err = tx.SendBatch(ctx, batch).Close()
	return decided, stock, err
}

func (l postgresLedger) book(ctx context.Context, tx pgx.Tx, o Order) error {
	batch := &pgx.Batch{}
	// One UPDATE for all lines would lock the rows in the order of its plan. Without a lock, most
	// of these would deadlock.
	for _, line := range o.Lines {
		batch.Queue("UPDATE shop_inventory SET stock = stock - $2 WHERE sku = $1", line.SKU, line.Quantity)
	}
	batch.Queue(`INSERT INTO shop_bookings (order_id, sku, quantity)
		SELECT $1::text, line.sku, line.quantity FROM unnest($2::text[], $3::integer[]) AS line (sku, quantity)`,
		o.ID, o.SKUs(), o.quantities())
	batch.Queue("INSERT INTO shop_decisions (order_id, decision) VALUES ($1, $2)", o.ID, Booked)
	return tx.SendBatch(ctx, batch).Close()
}

func (l postgresLedger) refuse(ctx context.Context, tx pgx.Tx, o Order) error {
	_, err := tx.Exec(ctx, "INSERT INTO shop_decisions (order_id, decision) VALUES ($1, $2)", o.ID, Refused)
	return err
}

func (l postgresLedger) settle(ctx context.Context, tx pgx.Tx, booked []Order, sold []Line,
	decisions []Decision,
) error {
	var lineIDs, outcomes []string
	var lines Order // of all
	for _, o := range booked {
		lineIDs = append(lineIDs, slices.Repeat([]string{o.ID}, len(o.Lines))...)
		lines.Lines = append(lines.Lines, o.Lines...)
	}
	decided := make([]string, len(decisions))
	for i, d := range decisions {
		decided[i] = d.Order
		outcomes = append(outcomes, string(d.Outcome))
	}
	all := Order{Lines: sold}
	batch := &pgx.Batch{}
	batch.Queue(`UPDATE shop_inventory SET stock = stock - sold.quantity
		FROM unnest($1::text[], $2::integer[]) AS sold (sku, quantity) WHERE shop_inventory.sku = sold.sku`,
		all.SKUs(), all.quantities())
	batch.Queue(`INSERT INTO shop_bookings (order_id, sku, quantity)
		SELECT * FROM unnest($1::text[], $2::text[], $3::integer[])`, lineIDs, lines.SKUs(), lines.quantities())
	batch.Queue("INSERT INTO shop_decisions (order_id, decision) SELECT * FROM unnest($1::text[], $2::text[])",
		decided, outcomes)
	return tx.SendBatch(ctx, batch).Close()
}

func (l postgresLedger) Transact(ctx context.Context, work func(ctx context.Context, tx pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, l.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return work(ctx, tx)
	})
}

func (l postgresLedger) Deadlocked(err error) bool {
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
