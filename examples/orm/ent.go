package orm

import (
	"context"
	"database/sql"
	"errors"

	"entgo.io/ent/dialect"
	entsql "entgo.io/ent/dialect/sql"
	"entgo.io/ent/dialect/sql/sqlgraph"
	"entgo.io/ent/schema/field"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
)

// Ent sells with ent. A client that ent generates sends all through its driver, by package
// sqlgraph: ent.NewClient(ent.Driver(within(tx))) is one on the transaction of a lock. To need no
// generated code, this example calls sqlgraph itself.
type Ent struct {
	*txlock.Locker[*sql.Tx]
	driver *entsql.Driver
}

// NewEnt shares one pool between ent and txlock.
func NewEnt(db *sql.DB) *Ent {
	return &Ent{txlock.New(mysql.New(db)), entsql.OpenDB(dialect.MySQL, db)}
}

// Sell sells in the transaction of a Do.
func (e *Ent) Sell(ctx context.Context, sku string) error {
	return e.Mutex(sku).Do(ctx, func(ctx context.Context, tx *sql.Tx) error { return e.sell(ctx, within(tx), sku) })
}

// within is the driver of ent in a transaction.
func within(tx *sql.Tx) dialect.Driver {
	return joined{entsql.NewDriver(dialect.MySQL, entsql.Conn{ExecQuerier: tx})}
}

// joined has a transaction for its pool. ent begins one around each update: here that is the one
// that there is. Its end does nothing, so return the error of an update: that undoes it.
type joined struct{ dialect.Driver }

// Tx implements dialect.Driver.
func (j joined) Tx(context.Context) (dialect.Tx, error) { return dialect.NopTx(j), nil }

// SellInTransaction sells in a transaction that ent's driver began.
func (e *Ent) SellInTransaction(ctx context.Context, sku string) error {
	begun, err := e.driver.Tx(ctx)
	if err != nil {
		return err
	}
	defer begun.Rollback() // an error behind the Commit
	tx, ok := begun.(*entsql.Tx).ExecQuerier.(*sql.Tx)
	if !ok { // another driver, as for traces, is around that of ent
		return errors.New("no *sql.Tx")
	}
	if err := e.Mutex(sku).LockTx(ctx, tx); err != nil {
		return err
	}
	if err := e.sell(ctx, within(tx), sku); err != nil {
		return err
	}
	return begun.Commit()
}

// sell reads and then writes, which is safe under the lock alone.
func (*Ent) sell(ctx context.Context, driver dialect.Driver, sku string) error {
	query, args := entsql.Dialect(driver.Dialect()).Select("stock").From(entsql.Table("goods")).
		Where(entsql.EQ("sku", sku)).Query()
	var rows entsql.Rows
	if err := driver.Query(ctx, query, args, &rows); err != nil {
		return err
	}
	stock, err := entsql.ScanInt(rows)
	if err := errors.Join(err, rows.Close()); err != nil {
		return err
	}
	if stock == 0 {
		return ErrSoldOut
	}
	key := sqlgraph.NewFieldSpec("sku", field.TypeString)
	key.Value = sku
	update := sqlgraph.NewUpdateSpec("goods", nil, key)
	update.SetField("stock", field.TypeInt, stock-1)
	return sqlgraph.UpdateNode(ctx, driver, update)
}
