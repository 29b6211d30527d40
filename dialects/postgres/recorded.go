package postgres

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/records"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// markStatement writes a marker, and is an error if it was there. In a foreign transaction it comes
// behind the lock, in an owner's behind the proof.
func markStatement(table string, marker dialects.Marker) (sqltext.Statement, error) {
	marker.Verb = dialects.WriteMarker
	mark, err := records.MarkSQL(table, marker)
	mark.SQL = "with marked as (" + mark.SQL + ") select case when not exists (select from marked) then " +
		failSQL(done) + " end"
	return mark, err
}
