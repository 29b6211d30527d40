// Package orm sells goods under locks of txlock with four libraries: gorm, bun, sqlc and ent. Goods
// that many buy at once are never sold twice.
//
// Each has two ways. Sell has the library work in the transaction of a Do, which commits only if
// the lock was held all the time. SellInTransaction takes the lock in a transaction that the
// library began, which releases it when it ends. The lock comes first there: what was read before
// it may be old.
package orm

import "errors"

// Good is what is on stock.
type Good struct {
	SKU   string `gorm:"primaryKey" bun:",pk"`
	Stock int
}

// ErrSoldOut says that nothing is left.
var ErrSoldOut = errors.New("sold out")
