package ent

import (
	"database/sql"

	entsql "entgo.io/ent/dialect/sql"
)

// SQL is the transaction of database/sql below tx, for LockTx. ent shows it to this package alone.
// It is not to be seen where another driver, as for traces, is around that of ent.
func (tx *Tx) SQL() (*sql.Tx, bool) {
	begun, ok := tx.driver.(*txDriver).tx.(*entsql.Tx)
	if !ok {
		return nil, false
	}
	below, ok := begun.ExecQuerier.(*sql.Tx)
	return below, ok
}
