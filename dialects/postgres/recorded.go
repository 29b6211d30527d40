package postgres

import (
	"fmt"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/records"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// doneSetting says whether a marker was found, to the statement behind it.
const doneSetting = "txlock.done"

// errFound says that the marker was there before the lock. The transaction is open, and has neither
// locked nor written anything.
var errFound = fmt.Errorf("%w: found", dialects.ErrDone)

// doneStatement reads a marker in front of a lock, which is then not taken.
func doneStatement(request dialects.Request) (sqltext.Statement, error) {
	var s sqltext.Statement
	found, err := records.DoneSQL(request.Table, *request.Marker, &s)
	s.SQL = "select set_config('" + doneSetting + "', exists (select " + found + ")::text, true)"
	return s, err
}

// markStatement writes a marker behind the lock, and returns a row if it was not there. Nothing is
// written unless the transaction has the row of request, and a suitable level: a marker that
// another session is writing would be waited for.
func markStatement(request dialects.Request, on terms) (s sqltext.Statement, err error) {
	where, err := behindLock(request, on)
	if err != nil {
		return s, err
	}
	return records.MarkSQL(request.Table, *request.Marker, where)
}

// behindLock is the rest of a query that has a row if the transaction has that of request.
func behindLock(request dialects.Request, on terms) (where func(*sqltext.Statement) string, err error) {
	if on.as == owner && isShort(request) { // which sets the mark with the lock
		return func(s *sqltext.Statement) string {
			return "where current_setting('" + client.MarkSetting + "', true) = " + s.Bind(on.mark)
		}, nil
	}
	rows, err := rowsOf(request)
	return func(s *sqltext.Statement) string {
		from := "from " + rows.table + " where " + rows.column + " = " + s.Bind(rows.values) + rows.seeded
		if on.as == foreign {
			from += " and " + isolationSQL
		}
		if request.Try { // see passedSetting
			from += " and current_setting('" + passedSetting + "', true) = 'true'"
		}
		return from + " for update skip locked"
	}, err
}

// claimScript changes a claim behind the lock of its key, and reads it. In a foreign transaction,
// whose answers nobody reads, it is an error unless the claim is kept.
func claimScript(request dialects.Request, on terms) (sqltext.Script, error) {
	if on.as == foreign {
		var s sqltext.Statement
		kept, err := records.KeptSQL(&s, request.Table, *request.Claim)
		s.SQL = "select " + failSQL(ended) + " where not " + kept
		return sqltext.Script{s}, err
	}
	f, err := fenceOf(request.Table)
	if err != nil {
		return nil, err
	}
	where, err := behindLock(request, on)
	if err != nil {
		return nil, err
	}
	return records.ClaimScript(request.Table, *request.Claim, f.drawn(), where)
}
