package doctor

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock/internal/locktable"
)

// postgresTable is the lock table as the server's catalog describes it.
type postgresTable struct {
	exists              bool
	kind, persistence   string // relkind and relpersistence of pg_class
	hidden              bool   // row-level security applies to this role
	keyed               bool   // slot alone is the primary key, or unique
	triggers, indexes   string // names
	noTriggers, noIndex string // statements that drop them, without the last semicolon
}

// kinds names the values of relkind that are not a table.
var kinds = map[string]string{
	"v": "view", "m": "materialized view", "f": "foreign table", "S": "sequence",
	"i": "index", "I": "index", "c": "type",
}

func (t postgresTable) isTable() bool { return t.kind == "r" || t.kind == "p" }

const postgresTableSQL = `SELECT c.relkind::text, c.relpersistence::text, row_security_active(c.oid),
	EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attname = 'slot'
		WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 1
			AND i.indkey[0] = a.attnum),
	coalesce((SELECT string_agg(quote_ident(tgname), ', ' ORDER BY tgname)
		FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal), ''),
	coalesce((
		SELECT string_agg(format('DROP TRIGGER %I ON %I.%I', tgname, n.nspname, c.relname), E';\n' ORDER BY tgname)
		FROM pg_trigger WHERE tgrelid = c.oid AND NOT tgisinternal), ''),
	coalesce((SELECT string_agg(i.indexrelid::regclass::text, ', ' ORDER BY i.indexrelid)
		FROM pg_index i WHERE i.indrelid = c.oid AND NOT i.indisprimary), ''),
	coalesce((SELECT string_agg(CASE WHEN k.conname IS NULL THEN format('DROP INDEX %I.%I', n.nspname, x.relname)
			ELSE format('ALTER TABLE %I.%I DROP CONSTRAINT %I', n.nspname, c.relname, k.conname) END,
			E';\n' ORDER BY i.indexrelid)
		FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid
			LEFT JOIN pg_constraint k ON k.conindid = i.indexrelid AND k.conrelid = c.oid
		WHERE i.indrelid = c.oid AND NOT i.indisprimary), '')
	FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)`

// locate finds the schema that the lock table is in, or would be created in.
func (p *postgresServer) locate(ctx context.Context) error {
	if schema, _, named := strings.Cut(p.quoted, `".`); named {
		p.schema = schema + `"`
		return nil
	}
	const query = `SELECT coalesce((
		SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass($1)
		), current_schema(), '')`
	var schema string
	if err := p.conn.QueryRow(ctx, query, p.quoted).Scan(&schema); err != nil {
		return err
	}
	if schema != "" {
		p.schema = quoteIdentifier(schema)
	}
	return nil
}

// creation makes a lock table that does not exist.
func (p *postgresServer) creation(ctx context.Context) (Fix, error) {
	if p.schema == "" {
		return advice("name a schema that there is: --table schema." + p.table + ", or in the search_path of " +
			p.role), nil
	}
	const query = `SELECT count(*) > 0,
			coalesce(bool_or(has_schema_privilege(oid, 'CREATE')), has_database_privilege(current_database(), 'CREATE'))
		FROM pg_namespace WHERE '"' || replace(nspname, '"', '""') || '"' = $1`
	var exists, may bool
	err := p.conn.QueryRow(ctx, query, p.schema).Scan(&exists, &may)
	switch {
	case err != nil:
		return Fix{}, err
	case !exists:
		return permission(p.table, "CREATE SCHEMA "+p.schema+" AUTHORIZATION "+p.role), nil
	case !may:
		return permission(p.table, "GRANT CREATE ON SCHEMA "+p.schema+" TO "+p.role), nil
	}
	return command(install(p.table)), nil
}

func (p *postgresServer) describe(ctx context.Context) (t postgresTable, err error) {
	err = p.conn.QueryRow(ctx, postgresTableSQL, p.quoted).
		Scan(&t.kind, &t.persistence, &t.hidden, &t.keyed, &t.triggers, &t.noTriggers, &t.indexes, &t.noIndex)
	if errors.Is(err, pgx.ErrNoRows) {
		return t, nil
	}
	t.exists = err == nil
	return t, err
}

func (p *postgresServer) lookAtTable(ctx context.Context) ([]Finding, error) {
	t, err := p.describe(ctx)
	if sqlState(err) == noPrivilege { // on the schema: lookAtPrivileges reports it
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	exact := p.exact(p.quoted)
	findings := t.findings(p.quoted, exact, p.table)
	if t.exists && !t.isTable() {
		return findings, nil
	}
	if t.hidden {
		return append(one(Finding{
			Check: "table-row-security", Severity: Failure,
			Found: "row-level security hides rows of " + p.quoted + " from this role",
			Why:   "a slot that is not seen cannot be locked",
			Fix:   postgresWait.exclusively("ALTER TABLE " + exact + " DISABLE ROW LEVEL SECURITY"),
		}), findings...), nil
	}
	namesakes, err := p.lookAtNamesakes(ctx)
	if err != nil {
		return nil, err
	}
	seeded, err := p.lookAtSlots(ctx, t.exists)
	return append(append(seeded, findings...), namesakes...), err
}

// lookAtSlots counts the slots. exists is false if the table does not exist.
func (p *postgresServer) lookAtSlots(ctx context.Context, exists bool) ([]Finding, error) {
	var census string
	err := p.conn.QueryRow(ctx, locktable.CensusSQL(p.quoted)).Scan(&census)
	switch sqlState(err) {
	case noPrivilege: // lookAtPrivileges reports it
		return nil, nil
	case undefinedTable, undefinedColumn, undefinedSchema:
	default:
		if err != nil {
			return nil, err
		}
	}
	if exists || err == nil {
		return one(slots(census, err, p.table, "DROP TABLE "+p.exact(p.quoted))), nil
	}
	creation, failed := p.creation(ctx)
	return one(missing(err, p.table, creation)), failed
}

// findings judges the table's shape, but not its rows. exact is its name with the schema; spelled
// is its name as the user wrote it.
func (t postgresTable) findings(table, exact, spelled string) []Finding {
	var findings []Finding
	add := func(check string, severity Severity, found, why string, fix Fix) {
		findings = append(findings, Finding{Check: check, Severity: severity, Found: found, Why: why, Fix: fix})
	}
	if !t.exists {
		return nil
	}
	if !t.isTable() {
		kind, known := kinds[t.kind]
		if !known {
			kind = "relation of relkind " + t.kind
		}
		add("table-kind", Failure, table+" is no table but a "+kind, "its rows are locked elsewhere, if at all",
			renewal("DROP "+strings.ToUpper(kind)+" "+exact, spelled))
		return findings
	}
	if t.kind == "p" {
		add("table-kind", Note, table+" is partitioned",
			"it costs time with every lock, and a table of this size gains nothing by it", Fix{})
	}
	if t.persistence == "u" {
		add("table-persistence", Warning, table+" is unlogged",
			"a crash of the server, and the promotion of a standby, empties it: until it is installed again every "+
				"lock is ErrNotInstalled",
			postgresWait.exclusively("ALTER TABLE "+exact+" SET LOGGED"))
	}
	if !t.keyed {
		add("table-primary-key", Warning, table+" has no primary key on slot",
			"every lock reads the whole table, and nothing keeps a slot from being there twice",
			postgresWait.exclusively("ALTER TABLE "+exact+" ADD PRIMARY KEY (slot)"))
	}
	if t.triggers != "" {
		add("table-triggers", Note, table+" has triggers: "+t.triggers,
			"no lock fires them, for none writes; Install does", postgresWait.exclusively(t.noTriggers))
	}
	if t.indexes != "" && t.keyed {
		add("table-indexes", Note, table+" has more indexes than it needs: "+t.indexes,
			"no lock uses them; they only take room", postgresWait.exclusively(t.noIndex))
	}
	return findings
}
