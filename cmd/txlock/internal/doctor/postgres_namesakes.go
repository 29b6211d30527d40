package doctor

import (
	"context"
	"strings"
)

// lookAtNamesakes names tables of the lock table's name in other schemas, where the name is without
// a schema.
func (p *postgresServer) lookAtNamesakes(ctx context.Context) ([]Finding, error) {
	if strings.Contains(p.quoted, `"."`) {
		return nil, nil
	}
	var others string
	err := p.conn.QueryRow(ctx, "SELECT "+
		"coalesce(string_agg(format('%I.%I', n.nspname, c.relname), ', ' ORDER BY n.nspname), '') FROM pg_class l "+
		"JOIN pg_class c ON c.relname = l.relname AND c.oid <> l.oid AND c.relkind IN ('r', 'p') "+
		"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE l.oid = to_regclass($1)", p.quoted).Scan(&others)
	if err != nil || others == "" {
		return nil, err
	}
	return one(Finding{
		Check: "table-namesakes", Severity: Note,
		Found: "other schemas have tables of the same name: " + others,
		Why: "search_path decides which one a client locks in, and clients of two tables do not exclude each other; " +
			"name the table with its schema where they should",
	}), nil
}
