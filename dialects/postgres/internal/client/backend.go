package client

import (
	"context"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// backend is who serves a connection in its present transaction, as the server names it. It is
// asked for where nobody else can interrupt a wait: the driver has no cancel request, or the login
// told no key for one. (RDS Proxy tells none, and takes no request.) A wait is then interrupted
// from another session.
//
// A pooler gives the server's session to another client when the transaction has ended. So the name
// is that of the transaction too: an interrupt that comes late hits nobody.
type backend struct{ name atomic.Pointer[string] }

// A process is named by its number and its start: a number is given out again, and the server of
// another sql.DB has numbers of its own.
const (
	processSQL = "concat(pid, ' ', extract(epoch from backend_start), ' '"
	// With track_activities off the server does not say since when the transaction lasts.
	namedSQL = processSQL + ", extract(epoch from xact_start))"

	backendSQL   = "select " + namedSQL + " from pg_stat_activity where pid = pg_backend_pid()"
	cancelSQL    = "select pg_cancel_backend(pid) from pg_stat_activity where " + namedSQL + " = $1"
	terminateSQL = "select pg_terminate_backend(pid) from pg_stat_activity where starts_with($1, " + processSQL + "))"
)

// run sends a script. Behind what comes in front of a wait it asks for the name, in a trip that the
// wait does not hold up. A nil backend does not.
func (b *backend) run(ctx context.Context, s sqltext.Script, send sender) (columns [][]string, err error) {
	if b == nil || len(s) == 0 || !s[0].Opens {
		return send(ctx, s)
	}
	columns, err = send(ctx, sqltext.Script{s[0], {SQL: backendSQL}})
	if err != nil {
		return columns, err
	}
	b.name.Store(&columns[1][0])
	if len(s) == 1 {
		return columns[:1], nil
	}
	further, err := send(ctx, s[1:])
	return append(columns[:1], further...), err
}

// tell has another session do something to the backend, by one of the statements above. As long as
// there is no name, no wait has begun.
func (b *backend) tell(ctx context.Context, query string, conn *pgx.Conn, pool elsewhere) error {
	name := b.name.Load()
	if name == nil {
		return nil
	}
	return pool.ask(ctx, conn, sqltext.With(query, *name))
}

// backendOf is nil for a connection that can send cancel requests.
func backendOf(conn *pgx.Conn) *backend {
	if conn.PgConn().PID() != 0 {
		return nil
	}
	return &backend{}
}

// elsewhere is a pool, which asks the server on another connection than known.
type elsewhere interface {
	ask(ctx context.Context, known *pgx.Conn, s sqltext.Statement) error
}

// interruptOf is how a wait on the connection is interrupted.
func (b *backend) interruptOf(conn *pgx.Conn, pool elsewhere) func(context.Context) error {
	if b == nil {
		return conn.PgConn().CancelRequest // safe beside a running statement
	}
	return b.canceler(conn, pool)
}

func (b *backend) canceler(conn *pgx.Conn, pool elsewhere) func(context.Context) error {
	return func(ctx context.Context) error { return b.tell(ctx, cancelSQL, conn, pool) }
}

// askAlone asks when the pool has no connection to give. It makes one: for a cancel request one
// would be made too.
func askAlone(ctx context.Context, config *pgx.ConnConfig, ask sqltext.Statement) error {
	config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // a pooler may be in between
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	defer conn.Close(context.Background())
	_, err = conn.Exec(ctx, ask.Sent(), ask.Values()...)
	return err
}
