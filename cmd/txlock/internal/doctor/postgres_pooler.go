package doctor

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// pooler compares the process number that the other end announced with that of the process that
// answers. A pooler numbers its clients itself, because it forwards their cancel requests. A proxy
// that only forwards bytes is not found, and does no harm.
func (p *postgresServer) pooler(ctx context.Context, r report) (fine string, err error) {
	var answering uint32
	if err := p.conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&answering); err != nil {
		return "", err
	}
	if answering == p.conn.PgConn().PID() {
		return "none: the server itself answers", nil
	}
	shared, err := p.sharesSessions(ctx)
	if err != nil {
		return "", err
	}
	mode := "gives each client a session of the server's own"
	if shared {
		mode = "shares the server's sessions between transactions"
	}
	b, err := p.console(ctx)
	if err != nil { // it hides its configuration
		why := "limits of its own on statements and transactions would cut locks"
		if shared {
			why += "; it must know prepared statements: PgBouncer from 1.21, with max_prepared_statements"
		}
		r.note("a pooler is in between that "+mode+"; how it is set is not visible to this user: "+err.Error(), why,
			configuration("pgbouncer.ini, if it is PgBouncer; then run this again",
				"stats_users = "+p.config.ConnConfig.User))
		return "", nil
	}
	found := b.version + " is in between, and " + mode
	p.unprepared = shared && p.prepares() && !b.tracksStatements()
	if p.unprepared {
		r.unprepared(found + ", with max_prepared_statements = 0")
	} else {
		r.ok(found)
	}
	b.timeouts(r)
	return "", nil
}

// prepares tells whether a program with this connection string prepares statements.
func (p *postgresServer) prepares() bool {
	mode := p.config.ConnConfig.DefaultQueryExecMode
	return mode == pgx.QueryExecModeCacheStatement || mode == pgx.QueryExecModeCacheDescribe ||
		mode == pgx.QueryExecModeDescribeExec
}

// sharesSessions tells whether the pooler gives one client's server session to another between
// transactions. A pooler usually hands out first what came back last. Five tries allow for others
// that use the pooler.
func (p *postgresServer) sharesSessions(ctx context.Context) (bool, error) {
	other, err := p.connect(ctx)
	if err != nil {
		return false, err
	}
	defer closeConn(ctx, other)
	for range 5 {
		var pids [2]uint32
		for i, conn := range []postgresConn{p.conn, other} {
			if err := conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pids[i]); err != nil {
				return false, err
			}
		}
		if pids[0] == pids[1] {
			return true, nil
		}
	}
	return false, nil
}

// bouncer is a PgBouncer whose configuration is visible.
type bouncer struct {
	version string
	config  map[string]string
}

// console asks PgBouncer's own database, which is open to admin_users and stats_users.
func (p *postgresServer) console(ctx context.Context) (bouncer, error) {
	b := bouncer{config: map[string]string{}}
	config := p.config.ConnConfig.Config.Copy()
	config.Database, config.ValidateConnect, config.AfterConnect = "pgbouncer", nil, nil
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return b, err
	}
	defer conn.Close(ctx)
	for _, question := range []string{"SHOW VERSION", "SHOW CONFIG"} {
		results, err := conn.Exec(ctx, question).ReadAll()
		if err != nil {
			return b, err
		}
		for _, row := range results[0].Rows {
			if len(row) == 1 {
				b.version = string(row[0])
			} else {
				b.config[string(row[0])] = string(row[1])
			}
		}
	}
	return b, nil
}

// unprepared is for a pooler in which prepared statements get lost.
func (r report) unprepared(found string) {
	r.named("pooler").fails(found,
		"statements that a program has prepared are unknown in the session of the server that the pooler gives it next",
		configuration("pgbouncer.ini (PgBouncer 1.21 or later)", "max_prepared_statements = 200",
			"# or else, in the connection string: default_query_exec_mode=simple_protocol"))
}

func (b bouncer) tracksStatements() bool {
	return b.config["max_prepared_statements"] != "0" && b.config["max_prepared_statements"] != ""
}

// timeouts looks for limits that end a lock, or a wait for one (manual, pgbouncer.ini, "Dangerous
// timeouts").
func (b bouncer) timeouts(r report) {
	for _, limit := range []struct{ name, of string }{
		{"query_timeout", "waiter that waits for longer"},
		{"idle_transaction_timeout", "holder that sends nothing for that long, and the lock is lost: work in a Do, " +
			"and a LockTx"},
		{"transaction_timeout", "holder that holds for longer, and the lock is lost"},
	} {
		if value := b.config[limit.name]; strings.Trim(value, "0.") != "" {
			r.named("pooler-"+kebab(limit.name)).warn("PgBouncer has "+limit.name+" = "+value+" s",
				"PgBouncer closes the connection of a "+limit.of, configuration("pgbouncer.ini", limit.name+" = 0"))
		}
	}
}
