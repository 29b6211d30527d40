package orm

import (
	"context"
	"database/sql"
	"fmt"

	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/txlock/txlock"
	dialect "github.com/txlock/txlock/dialects/postgres"
)

// Gorm sells with gorm.
type Gorm struct {
	*txlock.Locker[*sql.Tx]
	orm *gorm.DB
}

// NewGorm shares one pool between gorm and txlock.
func NewGorm(db *sql.DB) (*Gorm, error) {
	orm, err := gorm.Open(postgres.New(postgres.Config{Conn: db}), &gorm.Config{})
	return &Gorm{txlock.New(dialect.NewSQL(db)), orm}, err
}

// Sell sells in the transaction of a Do.
func (g *Gorm) Sell(ctx context.Context, sku string) error {
	return g.Mutex(sku).Do(ctx, func(ctx context.Context, tx *sql.Tx) error {
		orm := g.orm.Session(&gorm.Session{Context: ctx})
		orm.Statement.ConnPool = tx
		return g.sell(orm, sku)
	})
}

// SellInTransaction sells in a transaction of gorm's.
func (g *Gorm) SellInTransaction(ctx context.Context, sku string) error {
	return g.orm.WithContext(ctx).Transaction(func(orm *gorm.DB) error {
		tx, ok := orm.Statement.ConnPool.(*sql.Tx) // with PrepareStmt a *gorm.PreparedStmtTX around it
		if !ok {
			return fmt.Errorf("no *sql.Tx but %T", orm.Statement.ConnPool)
		}
		if err := g.Mutex(sku).LockTx(ctx, tx); err != nil {
			return err
		}
		return g.sell(orm, sku)
	})
}

// sell reads and then writes, which is safe under the lock alone.
func (*Gorm) sell(orm *gorm.DB, sku string) error {
	var good Good
	if err := orm.Take(&good, "sku = ?", sku).Error; err != nil {
		return err
	}
	if good.Stock == 0 {
		return ErrSoldOut
	}
	return orm.Model(&good).Update("stock", good.Stock-1).Error
}
