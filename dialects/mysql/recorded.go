package mysql

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/records"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// granted tells whether the locking statement has put a value into the session's variable.
const granted = "@" + sqltext.Variable + " IS NOT NULL"

// drawn is the variable of the session that has the row of counted.
const drawn = "txlock_drawn"

// recordScript puts the change of a claim behind the statement that locks, which puts what it locks
// into variables of the session. What stands behind writes nothing unless it did. The first line of
// the answer is the row that is locked, if there is one; the second is the claim.
func recordScript(request dialects.Request, lock string) (script []string, err error) {
	row, token, condition := "'"+request.Values[0].Text+"'", "0", granted
	if request.Fence != "" {
		row = "@" + drawn
		token, condition = drawnSQL(row)
	}
	write, read, err := records.ClaimSQL(request.Table, *request.Claim, token, condition)
	forget := "SET @" + sqltext.Variable + " = NULL, @" + drawn + " = NULL"
	answer := "(SELECT " + row + " FROM DUAL WHERE " + granted + ") UNION ALL (" + read + ")"
	return []string{forget, lock, write, answer}, err
}
