package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
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
	tooManyConnections = "53300"
	noPrivilege        = "42501"
	undefinedColumn    = "42703"
	undefinedTable     = "42P01"
	undefinedSchema    = "3F000"
	unknownStatement   = "26000" // the client believes that it has prepared it
	knownStatement     = "42P05"
)

// postgresServer is a server under examination.
type postgresServer struct {
	config        *pgxpool.Config
	conn          postgresConn
	table, quoted string // as the user spells it; as SQL
	schema        string // where the table is, or would be created; quoted; "" if there is none
	version       int    // server_version_num
	role          string // the role that logs in, quoted
	database      string // quoted
	superuser     bool
	backend       uint32 // the server's process
	socket        bool   // whether it is reached through a Unix-domain socket
	unprepared    bool   // whether a pooler loses prepared statements
	settings      map[string]setting
	unfit         map[string]string // values of needed, of a connection as dsn makes it, that do not serve
	long          time.Duration     // after which a transaction holds back vacuum for long
	far           int               // how many transactions a replication slot may keep
}

// Postgres examines the server at dsn, as the user of dsn sees it. dsn has the form of
// pgxpool.ParseConfig; table is the lock table as the user spells it. Postgres returns an error if
// the server cannot be reached, or does not know the user or the database. Everything else is a
// finding.
func Postgres(ctx context.Context, dsn, table string) ([]Finding, error) {
	return postgresWith(ctx, dsn, table, longAfter, farBehind)
}

func postgresWith(ctx context.Context, dsn, table string, long time.Duration, far int) ([]Finding, error) {
	quoted, err := identifier.Quote(table, '"', 2)
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	config, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "txlock doctor"
	}
	p := &postgresServer{config: config, table: table, quoted: quoted, long: long, far: far, unfit: map[string]string{}}
	p.conn, err = p.connect(ctx)
	if sqlState(err) == tooManyConnections {
		return one(crowded(err, p.moreConnections(err))), nil
	}
	if err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	defer closeConn(ctx, p.conn)
	if err := p.introduce(ctx); err != nil {
		return nil, fmt.Errorf("doctor: %w", err)
	}
	return run(ctx, p.checks(), func(error) bool { return p.conn.IsClosed() })
}

func (p *postgresServer) checks() []check {
	return []check{
		{"version", p.lookAtVersion},
		{"service", p.lookAtService},
		{"pooler", p.lookAtPooler},
		{"row-locking", p.lookAtLocking},
		{"table", p.lookAtTable},
		{"privileges", p.lookAtPrivileges},
		{"session", p.lookAtSession},
		{"isolation", p.lookAtIsolation},
		{"read-only", p.lookAtReadOnly},
		{"timeouts", p.lookAtTimeouts},
		{"other-roles", p.lookAtOtherRoles},
		{"vacuum", p.lookAtVacuum},
		{"client-connection-check-interval", p.lookAtClientCheck},
		{"tcp-keepalives", p.lookAtKeepalives},
		{"durability", p.lookAtDurability},
		{"connections", p.lookAtConnections},
		{"status", p.lookAtStatus},
		{"clock", p.lookAtClock},
	}
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

// introduce asks the server for the role, the database and all settings.
func (p *postgresServer) introduce(ctx context.Context) error {
	_, p.socket = p.conn.PgConn().Conn().RemoteAddr().(*net.UnixAddr)
	err := p.conn.QueryRow(ctx, "SELECT current_setting('server_version_num')::int, quote_ident(session_user), "+
		"quote_ident(current_database()), "+
		"current_setting('is_superuser') = 'on', pg_backend_pid()").
		Scan(&p.version, &p.role, &p.database, &p.superuser, &p.backend)
	if err != nil {
		return err
	}
	if p.settings, err = p.read(ctx); err != nil {
		return err
	}
	return p.locate(ctx)
}

func sqlState(err error) string {
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		return refused.Code
	}
	return ""
}

func (p *postgresServer) lookAtVersion(ctx context.Context) ([]Finding, error) {
	var text string
	if err := p.conn.QueryRow(ctx, "SELECT version()").Scan(&text); err != nil {
		return nil, err
	}
	return one(postgresVersion(text, p.version)), nil
}

func postgresVersion(text string, number int) Finding {
	text, _, _ = strings.Cut(text, " on ")
	finding := Finding{Severity: OK, Found: text + "; txlock is tested on 14 to 18"}
	major := number / 10000
	switch {
	case major < 14:
		finding.Severity, finding.Fix = Failure, advice("upgrade the server to PostgreSQL 14 or later")
		finding.Why = "every lock sets client_connection_check_interval, which a server before 14 refuses"
	case !strings.HasPrefix(text, "PostgreSQL "):
		finding.Severity, finding.Why = Note, "it is not PostgreSQL itself, and what txlock rests on was tried on "+
			"PostgreSQL only"
	case major > 18:
		finding.Severity, finding.Why = Note, "it is newer than any server that this txlock was tested on"
	}
	return finding
}

// lookAtLocking has the library prove that the server locks, on connections like a program's.
func (p *postgresServer) lookAtLocking(ctx context.Context) ([]Finding, error) {
	config := p.config.Copy()
	config.MaxConns, config.MinConns, config.MinIdleConns = 2, 0, 0
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	locks := txlock.New(postgres.New(pool), txlock.WithTable(p.table))
	err = locks.Check(ctx)
	switch sqlState(err) {
	case unknownStatement, knownStatement:
		found := one(proof(err, "statements that it prepares get lost in a pooler"))
		if !p.unprepared {
			found = append(found, unprepared(err.Error()))
		}
		return found, nil
	case tooManyConnections:
		return []Finding{proof(err, fewSessions), crowded(err, p.moreConnections(err))}, nil
	case noPrivilege:
		return one(proof(err, mayNotLock)), nil
	}
	return one(proof(err, "")), nil
}

// lookAtClock asks the server what time it is.
func (p *postgresServer) lookAtClock(ctx context.Context) ([]Finding, error) {
	var server time.Time
	asked := time.Now()
	if err := p.conn.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&server); err != nil {
		return nil, err
	}
	return one(clock(asked, time.Now(), server)), nil
}
