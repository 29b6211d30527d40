package doctor

import (
	"context"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// lookAtPooler compares the process number that the other end announced with that of the process
// that answers. A pooler numbers its clients itself, because it forwards their cancel requests. A
// proxy that only forwards bytes is not found, and does no harm.
func (p *postgresServer) lookAtPooler(ctx context.Context) ([]Finding, error) {
	var answering uint32
	var address, port *string
	err := p.conn.QueryRow(ctx, "SELECT pg_backend_pid(), host(inet_server_addr()), inet_server_port()::text").Scan(
		&answering, &address, &port)
	if err != nil {
		return nil, err
	}
	if answering == p.conn.PgConn().PID() {
		return one(Finding{Severity: OK, Found: "none: the server itself answers" + p.forwarded(address, port)}), nil
	}
	shared, err := p.sharesSessions(ctx)
	if err != nil {
		return nil, err
	}
	console, err := p.console(ctx)
	if err != nil {
		return one(unknownPooler(shared, p.config.ConnConfig.User, err)), nil
	}
	p.unprepared = shared && p.prepares() && !console.tracksStatements()
	return console.judge(shared, p.unprepared), nil
}

// forwarded says which address the server has, if it was reached at another one.
func (p *postgresServer) forwarded(address, port *string) string {
	if address == nil || port == nil {
		return ""
	}
	dialled, inside := p.conn.PgConn().Conn().RemoteAddr().String(), net.JoinHostPort(*address, *port)
	if dialled == inside {
		return ""
	}
	return fmt.Sprintf(", through something that forwards %s to %s", dialled, inside)
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
		var first, second uint32
		if err := p.conn.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&first); err != nil {
			return false, err
		}
		if err := other.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&second); err != nil {
			return false, err
		}
		if first == second {
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
	config := p.config.ConnConfig.Config.Copy()
	config.Database, config.ValidateConnect, config.AfterConnect = "pgbouncer", nil, nil
	conn, err := pgconn.ConnectConfig(ctx, config)
	if err != nil {
		return bouncer{}, err
	}
	defer conn.Close(ctx)
	b := bouncer{config: map[string]string{}}
	results, err := conn.Exec(ctx, "SHOW VERSION").ReadAll()
	if err != nil {
		return b, err
	}
	for _, row := range results[0].Rows {
		b.version = string(row[0])
	}
	if results, err = conn.Exec(ctx, "SHOW CONFIG").ReadAll(); err != nil {
		return b, err
	}
	for _, row := range results[0].Rows {
		b.config[string(row[0])] = string(row[1])
	}
	return b, nil
}

func mode(shared bool) string {
	if shared {
		return "shares the server's sessions between transactions"
	}
	return "gives each client a session of the server's own"
}

// unknownPooler is the finding for a pooler that hides its configuration.
func unknownPooler(shared bool, user string, err error) Finding {
	finding := Finding{
		Check: "pooler", Severity: Note, Found: "a pooler is in between that " + mode(shared) +
			"; how it is set is not visible to this user: " + err.Error(),
		Fix: configuration("pgbouncer.ini, if it is PgBouncer; then run this again", "stats_users = "+user),
	}
	finding.Why = "limits of its own on statements and transactions would cut locks"
	if shared {
		finding.Why += "; it must know prepared statements: PgBouncer from 1.21, with max_prepared_statements"
	}
	return finding
}

// unprepared is the finding for a pooler in which prepared statements get lost.
func unprepared(found string) Finding {
	return Finding{
		Check: "pooler", Severity: Failure, Found: found,
		Why: "statements that a program has prepared are unknown in the session of the server that the pooler gives " +
			"it next",
		Fix: configuration("pgbouncer.ini (PgBouncer 1.21 or later)", "max_prepared_statements = 200",
			"# or else, in the connection string: default_query_exec_mode=simple_protocol"),
	}
}

// judge returns the findings about PgBouncer. lost tells whether prepared statements get lost in
// it.
func (b bouncer) judge(shared, lost bool) []Finding {
	finding := Finding{Check: "pooler", Severity: OK, Found: b.version + " is in between, and " + mode(shared)}
	if lost {
		finding = unprepared(finding.Found + ", with max_prepared_statements = 0")
	}
	return append(one(finding), b.timeouts()...)
}

func (b bouncer) tracksStatements() bool {
	return b.config["max_prepared_statements"] != "0" && b.config["max_prepared_statements"] != ""
}

// timeouts returns findings on PgBouncer's limits that end a lock, or a wait for one (manual,
// pgbouncer.ini, "Dangerous timeouts").
func (b bouncer) timeouts() []Finding {
	var findings []Finding
	for _, limit := range []struct{ name, why string }{
		{"query_timeout", "PgBouncer closes the connection of a waiter that waits for longer"},
		{"idle_transaction_timeout", "PgBouncer closes the connection of a holder that sends nothing for that long, " +
			"and the lock is lost: work in a Do, and a LockTx"},
		{"transaction_timeout", "PgBouncer closes the connection of a holder that holds for longer, and the lock is " +
			"lost"},
	} {
		value, known := b.config[limit.name]
		if !known || strings.Trim(value, "0.") == "" {
			continue
		}
		findings = append(findings, Finding{
			Check: "pooler-" + kebab(limit.name), Severity: Warning,
			Found: "PgBouncer has " + limit.name + " = " + value + " s", Why: limit.why,
			Fix: configuration("pgbouncer.ini", limit.name+" = 0"),
		})
	}
	return findings
}
