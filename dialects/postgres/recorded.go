package postgres

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/records"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

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
