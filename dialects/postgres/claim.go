package postgres

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/records"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

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
