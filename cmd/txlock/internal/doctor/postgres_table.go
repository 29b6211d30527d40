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
	kind, persistence string // relkind and relpersistence of pg_class
	hidden            bool   // row-level security applies to this role
	keyed             bool   // slot alone is the primary key, or unique
}

// relations names the values of relkind that are not a table.
var relations = map[string]string{
	"v": "view", "m": "materialized view", "f": "foreign table", "S": "sequence",
	"i": "index", "I": "index", "c": "type",
}

const postgresTableSQL = `SELECT c.relkind::text, c.relpersistence::text, row_security_active(c.oid),
	EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attname = 'slot'
		WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indnkeyatts = 1
			AND i.indkey[0] = a.attnum)
	FROM pg_class c WHERE c.oid = to_regclass($1)`

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

func (p *postgresServer) lockTable(ctx context.Context, r report) (fine string, err error) {
	var t postgresTable
	err = p.conn.QueryRow(ctx, postgresTableSQL, p.quoted).
		Scan(&t.kind, &t.persistence, &t.hidden, &t.keyed)
	exists := !errors.Is(err, pgx.ErrNoRows)
	switch {
	case sqlState(err) == noPrivilege: // on the schema: privileges reports it
		return "", nil
	case err != nil && exists:
		return "", err
	case exists && t.kind != "r" && t.kind != "p":
		kind, known := relations[t.kind]
		if !known {
			kind = "relation of relkind " + t.kind
		}
		r.named("table-kind").fails(p.quoted+" is no table but a "+kind, "its rows are locked elsewhere, if at all",
			renewal("DROP "+strings.ToUpper(kind)+" "+p.exact(p.quoted), p.table))
		return "", nil
	case t.hidden:
		r.named("table-row-security").fails("row-level security hides rows of "+p.quoted+" from this role",
			"a slot that is not seen cannot be locked", p.alteration("DISABLE ROW LEVEL SECURITY"))
	default:
		if err := p.slots(ctx, r, exists); err != nil {
			return "", err
		}
	}
	if exists {
		p.shape(r, t)
	}
	if t.hidden || qualified(p.quoted) {
		return "", nil
	}
	var others string
	err = p.conn.QueryRow(ctx, "SELECT "+
		"coalesce(string_agg(format('%I.%I', n.nspname, c.relname), ', ' ORDER BY n.nspname), '') FROM pg_class l "+
		"JOIN pg_class c ON c.relname = l.relname AND c.oid <> l.oid AND c.relkind IN ('r', 'p') "+
		"JOIN pg_namespace n ON n.oid = c.relnamespace WHERE l.oid = to_regclass($1)", p.quoted).Scan(&others)
	if others != "" {
		r.named("table-namesakes").note("other schemas have tables of the same name: "+others,
			"search_path decides which one a client locks in, and clients of two tables do not exclude each other; "+
				"name the table with its schema where they should", Fix{})
	}
	return "", err
}

// slots counts the slots. exists is false if the table does not exist.
func (p *postgresServer) slots(ctx context.Context, r report, exists bool) error {
	var census string
	err := p.conn.QueryRow(ctx, locktable.CensusSQL(p.quoted)).Scan(&census)
	switch sqlState(err) {
	case noPrivilege: // privileges reports it
		return nil
	case undefinedTable, undefinedColumn, undefinedSchema:
	default:
		if err != nil {
			return err
		}
	}
	if exists || err == nil {
		r.slots(census, err, p.table, "DROP TABLE "+p.exact(p.quoted))
		return nil
	}
	creation, failed := p.creation(ctx)
	r.fails("table "+p.table+" is missing: "+err.Error(), slotted, creation)
	return failed
}

// alteration is an ALTER TABLE of the lock table.
func (p *postgresServer) alteration(change string) Fix {
	return postgresWait.exclusively("ALTER TABLE " + p.exact(p.quoted) + " " + change)
}

// shape judges the table, but not its rows.
func (p *postgresServer) shape(r report, t postgresTable) {
	if t.persistence == "u" {
		r.named("table-persistence").warn(p.quoted+" is unlogged", "a crash of the server, and the promotion of a "+
			"standby, empties it: until it is installed again every lock is ErrNotInstalled",
			p.alteration("SET LOGGED"))
	}
	if !t.keyed {
		r.named("table-primary-key").warn(p.quoted+" has no primary key on slot", "every lock reads the whole table, "+
			"and nothing keeps a slot from being there twice", p.alteration("ADD PRIMARY KEY (slot)"))
	}
}
