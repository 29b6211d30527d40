package mysql

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/records"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// recordScript puts the look for a marker behind the statement that locks, which puts what it locks
// into a variable of the session. The first line of the answer is the row that is locked, if there
// is one; the second is what Marker.Read reads.
func recordScript(request dialects.Request, lock string) (script []string, err error) {
	const granted = " FROM DUAL WHERE @" + sqltext.Variable + " IS NOT NULL"
	read, err := records.LookSQL(request.Table, *request.Marker, "")
	answer := "(SELECT '" + request.Values[0].Text + "'" + granted + ") UNION ALL (" + read + granted + ")"
	return []string{"SET @" + sqltext.Variable + " = NULL", lock, answer}, err
}
