package doctor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/identifier"
)

// SQLSTATEs (manual, appendix A) that say what is wrong with the server's set-up.
const (
	noPrivilege      = "42501"
	undefinedColumn  = "42703"
	undefinedTable   = "42P01"
	undefinedSchema  = "3F000"
	unknownStatement = "26000" // the client believes that it has prepared it
	knownStatement   = "42P05"
)

// postgresServer is a server under examination.
type postgresServer struct {
	config         *pgxpool.Config
	conn           postgresConn
	table, quoted  string // as the user spells it; as SQL
	schema         string // where the table is, or would be created; quoted; "" if there is none
	role, database string // the role that logs in, quoted; quoted
	unprepared     bool   // whether a pooler loses prepared statements
	settings       map[string]setting
	unfit          map[string]string // values of needed, of a connection as dsn makes it, that do not serve
}

// Postgres examines the server at dsn, as the user of dsn sees it. dsn has the form of
// pgxpool.ParseConfig; table is the lock table as the user spells it. Postgres returns an error if
// the server cannot be reached, or does not know the user or the database. Everything else is a
// finding.
func Postgres(ctx context.Context, dsn, table string) (findings []Finding, err error) {
	p := &postgresServer{table: table, unfit: map[string]string{}}
	if p.quoted, err = identifier.Quote(table, '"', 2); err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	if p.config, err = pgxpool.ParseConfig(dsn); err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	if p.config.ConnConfig.RuntimeParams["application_name"] == "" {
		p.config.ConnConfig.RuntimeParams["application_name"] = "txlock doctor"
	}
	p.conn, err = p.connect(ctx)
	if err == nil {
		defer closeConn(ctx, p.conn)
		err = p.introduce(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	return run(ctx, []check{
		{"version", p.ofVersion},
		{"pooler", p.pooler},
		{"row-locking", p.locking},
		{"table", p.lockTable},
		{"privileges", p.privileges},
		{"kinds", p.otherKinds},
		{"session", p.session},
		{"isolation", p.isolation},
		{"read-only", p.readOnly},
		{"timeouts", p.timeouts},
		{"status", p.status},
	}, func(error) bool { return p.conn.IsClosed() })
}

// connect opens a connection that prepares nothing, because a pooler may be in between.
func (p *postgresServer) connect(ctx context.Context) (postgresConn, error) {
	config := p.config.ConnConfig.Copy()
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
	opened, err := pgx.ConnectConfig(ctx, config)
	conn := postgresConn{opened}
	for _, needed := range needed {
		if err != nil {
			return conn, err
		}
		value := conn.PgConn().ParameterStatus(needed.name)
		if identifier.Needed(needed.name, value) != "" {
			p.unfit[needed.name] = value
		}
		if value != needed.value && value != "" {
			_, err = conn.Exec(ctx, "SET "+needed.name+" = '"+needed.value+"'") // else pgx sends nothing more
		}
	}
	return conn, err
}

// postgresConn sends the doctor's texts.
type postgresConn struct{ *pgx.Conn }

// Query is that of pgx, with qualified names.
func (c postgresConn) Query(ctx context.Context, text string, args ...any) (pgx.Rows, error) {
	return c.Conn.Query(ctx, identifier.Qualified(text), args...)
}

// QueryRow is that of pgx, with qualified names.
func (c postgresConn) QueryRow(ctx context.Context, text string, args ...any) pgx.Row {
	return c.Conn.QueryRow(ctx, identifier.Qualified(text), args...)
}

func closeConn(ctx context.Context, conn postgresConn) {
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = conn.Close(brief)
}

// introduce asks the server for the role, the database, all settings, and the schema that the lock
// table is in, or would be created in.
func (p *postgresServer) introduce(ctx context.Context) error {
	bare, schema := p.quoted, ""
	if before, _, named := strings.Cut(p.quoted, `".`); named { // which to look for, the role may not
		bare, schema = "", before+`"`
	}
	err := p.conn.QueryRow(ctx, `SELECT quote_ident(session_user), quote_ident(current_database()),
		coalesce((SELECT n.nspname FROM pg_class c
			JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(nullif($1::text, ''))),
			current_schema(), '')`, bare).Scan(&p.role, &p.database, &p.schema)
	if err != nil {
		return err
	}
	if schema != "" {
		p.schema = schema
	} else if p.schema != "" {
		p.schema = quoteIdentifier(p.schema)
	}
	p.settings, err = p.read(ctx)
	return err
}

func sqlState(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

func (p *postgresServer) ofVersion(ctx context.Context, r report) (fine string, err error) {
	var text string
	var number int
	err = p.conn.QueryRow(ctx, "SELECT version(), current_setting('server_version_num')::int").Scan(&text, &number)
	if err != nil {
		return "", err
	}
	return r.postgresVersion(text, number), nil
}

func (r report) postgresVersion(text string, number int) (found string) {
	text, _, _ = strings.Cut(text, " on ")
	found = text + "; txlock is tested on 14 to 18"
	switch major := number / 10000; {
	case major < 14:
		r.fails(found, "every lock sets client_connection_check_interval, which a server before 14 refuses",
			advice("upgrade the server to PostgreSQL 14 or later"))
	case !strings.HasPrefix(text, "PostgreSQL "):
		r.note(found, "it is not PostgreSQL itself, and what txlock rests on was tried on PostgreSQL only", Fix{})
	case major > 18:
		r.note(found, "it is newer than any server that this txlock was tested on", Fix{})
	}
	return found
}

// locking has the library prove that the server locks, on connections like a program's.
func (p *postgresServer) locking(ctx context.Context, r report) (fine string, err error) {
	config := p.config.Copy()
	config.MaxConns, config.MinConns, config.MinIdleConns = 2, 0, 0
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return "", err
	}
	defer pool.Close()
	err = txlock.New(postgres.New(pool), txlock.WithTable(p.table)).Check(ctx)
	switch sqlState(err) {
	case unknownStatement, knownStatement:
		r.proof(err, "statements that it prepares get lost in a pooler")
		if !p.unprepared {
			r.unprepared(err.Error())
		}
	case noPrivilege:
		r.proof(err, mayNotLock)
	default:
		r.proof(err, "")
	}
	return "", nil
}
