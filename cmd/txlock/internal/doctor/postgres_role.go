package doctor

import (
	"context"
	"fmt"
	"strings"
)

// privileges reports missing privileges on the schema, the lock table, and what stands beside it
// for tokens.
func (p *postgresServer) privileges(ctx context.Context, r report) (fine string, err error) {
	for _, needed := range []struct {
		kind, object, privileges string
		severity                 Severity
		why                      string
	}{
		{"SCHEMA", p.schema, "USAGE", Failure, "without it, no table of the schema is found"},
		{
			"TABLE", p.quoted, "SELECT, UPDATE", Failure,
			"SELECT … FOR UPDATE needs both, though no lock changes a row",
		},
		{"TABLE", p.beside("_epochs"), "SELECT, INSERT, UPDATE", Warning, drawn},
		{"TABLE", p.beside("_runs"), "SELECT, INSERT, UPDATE", Warning, drawn},
		{"SEQUENCE", p.beside("_tokens"), "USAGE, SELECT", Warning, drawn},
	} {
		if needed.kind == "SCHEMA" && !qualified(p.quoted) {
			continue
		}
		err := p.needs(ctx, r, needed.severity, needed.kind, needed.object, needed.privileges, needed.why)
		if err != nil {
			return "", err
		}
	}
	return p.role + " may lock", nil
}

// otherKinds looks for privileges that elections, permits, markers and claims need.
func (p *postgresServer) otherKinds(ctx context.Context, r report) (fine string, err error) {
	for _, kind := range kinds {
		privileges := kind.privileges
		if kind.suffix == "_permits" { // they are held by advisory locks
			privileges = "SELECT, INSERT"
		}
		if err := p.needs(ctx, r, Note, "TABLE", p.beside(kind.suffix), privileges, kind.why); err != nil {
			return "", err
		}
	}
	return p.role + " may use all kinds of locks", nil
}

// needs reports which of the privileges on an object the role lacks.
func (p *postgresServer) needs(
	ctx context.Context, r report, severity Severity, kind, object, privileges, why string,
) error {
	var missing []string
	for privilege := range strings.SplitSeq(privileges, ", ") {
		granted, err := p.granted(ctx, kind, object, privilege)
		if err != nil {
			return err
		}
		if !granted {
			missing = append(missing, privilege)
		}
	}
	if list := strings.Join(missing, ", "); list != "" {
		exact := object
		if kind != "SCHEMA" {
			exact = p.exact(object)
		}
		r.add(severity, fmt.Sprintf("%s has no %s on %s", p.role, list, object), why,
			statements(fmt.Sprintf("GRANT %s ON %s %s TO %s", list, kind, exact, p.role)))
	}
	return nil
}

// beside is the name of an object that Install derives from the lock table's.
func (p *postgresServer) beside(suffix string) string {
	return strings.TrimSuffix(p.quoted, `"`) + suffix + `"`
}

// object is the SQL for the identifier of a table or sequence, or NULL. $1 is the name, and $2
// tells whether it has a schema. With a schema, to_regclass would need USAGE on it; the catalog
// does not.
const object = `coalesce((SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE '"' || replace(nspname, '"', '""') || '"."' || replace(relname, '"', '""') || '"' = $1),
	CASE WHEN $2::bool THEN NULL ELSE to_regclass($1)::oid END)`

// exact is the name of the lock table, or of an object beside it, with its schema: the
// administrator may have another search_path.
func (p *postgresServer) exact(quoted string) string {
	if qualified(quoted) || p.schema == "" {
		return quoted
	}
	return p.schema + "." + quoted
}

// granted tells whether the role has a privilege on an object. It is true if the object does not
// exist. A lock needs UPDATE on one column only.
func (p *postgresServer) granted(ctx context.Context, kind, name, privilege string) (granted bool, err error) {
	function := "has_table_privilege"
	switch {
	case kind == "SCHEMA":
		const query = "SELECT coalesce((SELECT has_schema_privilege(oid, $2) FROM pg_namespace WHERE '\"' || " +
			"replace(nspname, '\"', '\"\"') || '\"' = $1), true)"
		err = p.conn.QueryRow(ctx, query, name, privilege).Scan(&granted)
		return granted, err
	case kind == "SEQUENCE":
		function = "has_sequence_privilege"
	case name == p.quoted:
		function = "has_any_column_privilege"
	}
	err = p.conn.QueryRow(ctx, "SELECT coalesce("+function+"("+object+", $3), true)", name, qualified(name),
		privilege).Scan(&granted)
	return granted, err
}

func qualified(quoted string) bool { return strings.Contains(quoted, `"."`) }

func quoteIdentifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// status looks for missing privileges and settings that keep txlock status from showing everything.
func (p *postgresServer) status(ctx context.Context, r report) (fine string, err error) {
	for _, needed := range []struct{ role, why string }{
		{"pg_read_all_stats", "of sessions of other roles, txlock status does not show what they run, since when and " +
			"from where"},
		{"pg_signal_backend", "txlock break ends sessions of this role only"},
	} {
		var member bool
		err := p.conn.QueryRow(ctx, "SELECT pg_has_role($1, 'USAGE')", needed.role).Scan(&member)
		if err != nil {
			return "", err
		}
		if !member {
			r.note(p.role+" is not in "+needed.role, needed.why, statements("GRANT "+needed.role+" TO "+p.role))
		}
	}
	return p.role + " sees the sessions of all roles, and may end those of other roles, but for superusers", nil
}
