package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// grant lists the privileges that a role needs on an object. The kind is TABLE, SEQUENCE or SCHEMA.
type grant struct {
	kind, object string
	privileges   []string
	severity     Severity
	why          string
}

func (p *postgresServer) lookAtPrivileges(ctx context.Context) ([]Finding, error) {
	grants := []grant{{
		"TABLE", p.quoted,
		[]string{"SELECT", "UPDATE"},
		Failure,
		"SELECT … FOR UPDATE needs both, though no lock changes a row",
	}}
	if schema, _, qualified := strings.Cut(p.quoted, `".`); qualified {
		grants = slices.Insert(grants, 0, grant{
			"SCHEMA", schema + `"`,
			[]string{"USAGE"},
			Failure,
			"without it, no table of the schema is found",
		})
	}
	epochs, runs, tokens := p.fenced()
	findings, err := p.lookAtGrants(ctx, append(grants,
		grant{"TABLE", epochs, []string{"SELECT", "INSERT", "UPDATE"}, Warning, drawn},
		grant{"TABLE", runs, []string{"SELECT", "INSERT", "UPDATE"}, Warning, drawn},
		grant{"SEQUENCE", tokens, []string{"USAGE", "SELECT"}, Warning, drawn}))
	if err != nil || len(findings) > 0 {
		return findings, err
	}
	return one(Finding{Severity: OK, Found: p.role + " may lock"}), nil
}

// fenced returns the names of the objects for tokens. Install derives them from the lock table's.
func (p *postgresServer) fenced() (epochs, runs, tokens string) {
	stem := strings.TrimSuffix(p.quoted, `"`)
	return stem + `_epochs"`, stem + `_runs"`, stem + `_tokens"`
}

// lookAtGrants reports missing privileges on objects that exist.
func (p *postgresServer) lookAtGrants(ctx context.Context, grants []grant) ([]Finding, error) {
	var findings []Finding
	for _, needed := range grants {
		var missing []string
		for _, privilege := range needed.privileges {
			granted, err := p.granted(ctx, needed, privilege)
			if err != nil {
				return nil, err
			}
			if !granted {
				missing = append(missing, privilege)
			}
		}
		if len(missing) == 0 {
			continue
		}
		list, object := strings.Join(missing, ", "), needed.object
		if needed.kind != "SCHEMA" {
			object = p.exact(object)
		}
		findings = append(findings, Finding{
			Severity: needed.severity, Found: fmt.Sprintf("%s has no %s on %s", p.role, list, needed.object),
			Why: needed.why,
			Fix: statements(fmt.Sprintf("GRANT %s ON %s %s TO %s", list, needed.kind, object, p.role)),
		})
	}
	return findings, nil
}

// object is the SQL for the identifier of a table or sequence, or NULL. $1 is the name, and $2
// tells whether it has a schema. With a schema, to_regclass would need USAGE on it; the catalog
// does not.
const object = `coalesce((SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
	WHERE '"' || replace(nspname, '"', '""') || '"."' || replace(relname, '"', '""') || '"' = $1),
	CASE WHEN $2::bool THEN NULL ELSE to_regclass($1)::oid END)`

// exact is the name of the lock table, or of an object for tokens, with its schema: the
// administrator may have another search_path.
func (p *postgresServer) exact(quoted string) string {
	if qualified(quoted) || p.schema == "" {
		return quoted
	}
	return p.schema + "." + quoted
}

// granted tells whether the role has a privilege on an object. It is true if the object does not
// exist. A lock needs UPDATE on one column only.
func (p *postgresServer) granted(ctx context.Context, needed grant, privilege string) (granted bool, err error) {
	if needed.kind == "SCHEMA" {
		const query = "SELECT coalesce((SELECT has_schema_privilege(oid, $2) FROM pg_namespace WHERE '\"' || " +
			"replace(nspname, '\"', '\"\"') || '\"' = $1), true)"
		err = p.conn.QueryRow(ctx, query, needed.object, privilege).Scan(&granted)
		return granted, err
	}
	function := "has_table_privilege"
	switch {
	case needed.kind == "SEQUENCE":
		function = "has_sequence_privilege"
	case needed.object == p.quoted:
		function = "has_any_column_privilege"
	}
	err = p.conn.QueryRow(ctx, "SELECT coalesce("+function+"("+object+", $3), true)", needed.object,
		qualified(needed.object), privilege).Scan(&granted)
	return granted, err
}

func qualified(quoted string) bool { return strings.Contains(quoted, `"."`) }

func (p *postgresServer) lookAtConnections(ctx context.Context) ([]Finding, error) {
	const query = `SELECT current_setting('max_connections')::int,
		current_setting('superuser_reserved_connections')::int +
			coalesce(current_setting('reserved_connections', true)::int, 0),
		(SELECT coalesce(sum(numbackends), 0) FROM pg_stat_database WHERE datid <> '0'),
		r.rolconnlimit, (SELECT count(*) FROM pg_stat_activity WHERE usesysid = r.oid),
		d.datconnlimit, coalesce(pg_stat_get_db_numbackends(d.oid), 0)
		FROM pg_roles r, pg_database d WHERE r.rolname = session_user AND d.datname = current_database()`
	var most, reserved, used, roleLimit, ofRole, databaseLimit, inDatabase int
	if err := p.conn.QueryRow(ctx, query).Scan(&most, &reserved, &used, &roleLimit, &ofRole, &databaseLimit,
		&inDatabase); err != nil {
		return nil, err
	}
	if p.superuser { // a superuser may use the reserved connections
		reserved = 0
	}
	more := statements(fmt.Sprintf("ALTER SYSTEM SET max_connections = %d", 2*most)).only(
		"use smaller pools; or this, and restart the server:")
	rooms := []room{{most - reserved, used, "the server", more}}
	if roleLimit >= 0 && !p.superuser {
		rooms = append(rooms, room{
			roleLimit, ofRole, "role " + p.role,
			statements(fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT %d", p.role, max(50, 2*roleLimit))),
		})
	}
	if databaseLimit >= 0 && !p.superuser {
		rooms = append(rooms, room{
			databaseLimit, inDatabase, "database " + p.database,
			statements(fmt.Sprintf("ALTER DATABASE %s CONNECTION LIMIT %d", p.database, max(50, 2*databaseLimit))),
		})
	}
	return one(connections(rooms...)), nil
}

// moreConnections is the remedy for a refused connection. The error says whose limit it was; there
// is no session to ask.
func (p *postgresServer) moreConnections(refusal error) Fix {
	switch text := refusal.Error(); {
	case strings.Contains(text, "for role"):
		return statements(fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT 50", quoteIdentifier(p.config.ConnConfig.User)))
	case strings.Contains(text, "for database"):
		return statements(fmt.Sprintf("ALTER DATABASE %s CONNECTION LIMIT 50",
			quoteIdentifier(p.config.ConnConfig.Database)))
	}
	return advice("end sessions that are not needed, use smaller pools, or give the server a larger max_connections " +
		"and restart it")
}

func quoteIdentifier(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// lookAtStatus looks for missing privileges and settings that keep txlock status from showing
// everything.
func (p *postgresServer) lookAtStatus(ctx context.Context) ([]Finding, error) {
	var sees, signals bool
	err := p.conn.QueryRow(ctx, "SELECT pg_has_role('pg_read_all_stats', 'USAGE'), pg_has_role('pg_signal_backend', "+
		"'USAGE')").Scan(&sees, &signals)
	if err != nil {
		return nil, err
	}
	var findings []Finding
	if !sees {
		findings = append(findings, Finding{
			Severity: Note, Found: p.role + " is not in pg_read_all_stats",
			Why: "of sessions of other roles, txlock status does not show what they run, since when and from where",
			Fix: statements("GRANT pg_read_all_stats TO " + p.role),
		})
	}
	if !signals {
		findings = append(findings, Finding{
			Severity: Note, Found: p.role + " is not in pg_signal_backend",
			Why: "txlock break ends sessions of this role only",
			Fix: statements("GRANT pg_signal_backend TO " + p.role),
		})
	}
	if s := p.settings["track_activities"]; s.value == "off" {
		findings = append(findings, Finding{
			Severity: Note, Found: "track_activities = off" + s.origin(),
			Why: "txlock status cannot show what sessions do; only a superuser may change it",
			Fix: p.set(s.name, "on"),
		})
	}
	if len(findings) == 0 {
		finding := Finding{Severity: OK, Found: p.role + " sees the sessions of all roles, and may end them"}
		if !p.superuser {
			finding.Found += ", except superusers'"
		}
		findings = one(finding)
	}
	return findings, nil
}

// lookAtDurability judges what a crash would undo. No lock writes its row, so only commits and
// tokens depend on the disk.
func (p *postgresServer) lookAtDurability(ctx context.Context) ([]Finding, error) {
	var fenced bool
	epochs, _, _ := p.fenced()
	if err := p.conn.QueryRow(ctx, "SELECT "+object+" IS NOT NULL", epochs, qualified(epochs)).Scan(
		&fenced); err != nil {
		return nil, err
	}
	var findings []Finding
	if s := p.settings["fsync"]; s.value == "off" && fenced {
		fix := statements("ALTER SYSTEM SET fsync = on", "SELECT pg_reload_conf()").only(
			"one after the other, not in a transaction:")
		if s.source == "command line" { // it overrides ALTER SYSTEM
			fix = advice("start the server without fsync=off in its command line")
		}
		findings = append(findings, Finding{
			Severity: Warning, Found: "fsync = off" + s.origin(), Fix: fix,
			Why: "when the machine crashes, fencing tokens may come a second time, if the data survives at all",
		})
	}
	if s := p.settings["synchronous_commit"]; s.value == "off" {
		findings = append(findings, Finding{
			Severity: Note, Found: "synchronous_commit = off" + s.origin(), Fix: p.set(s.name, "on"),
			Why: "work of a Do that returned nil may be undone by a crash of the server; tokens are not touched, " +
				"they wait for the disk all the same",
		})
	}
	if len(findings) == 0 {
		findings = one(Finding{Severity: OK, Found: "locks and tokens need nothing more than what is set"})
	}
	return findings, nil
}
