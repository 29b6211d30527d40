package mysql

import (
	"context"
	"database/sql"
	"slices"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/kinds"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// Run implements dialects.Driver.
func (d *Driver) Run(ctx context.Context, q dialects.Query, in ...*sql.Tx) (lines []string, err error) {
	if len(in) > 0 {
		table := dialects.Request{Table: q.Table}
		if err := d.tables.Lockable(ctx, in[0], table, interrupt.GuestPatience, nil); err != nil {
			return nil, err
		}
		return run(ctx, client.Link{Querier: in[0]}, q)
	}
	script, err := kinds.StatementsOf(q)
	if err != nil {
		return nil, err
	}
	conn, err := d.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.GiveBack()
	if err := d.pool.Identify(ctx, conn); err != nil {
		return nil, err
	}
	tag := client.NewTag()
	if q.Reads {
		script[0] = reading(script[0], d.pool.Galera())
	}
	for i := range script {
		script[i] = sqltext.Comment("", tag) + script[i]
	}
	err = d.pool.Await(ctx, false, tag, interrupt.Patience, conn.Cut(), func(ctx context.Context) (err error) {
		lines, err = runAlone(ctx, conn, script, q.Reads)
		return err
	})
	if err != nil {
		clean, cancel := interrupt.Detached(ctx)
		defer cancel()
		if _, failed := conn.ExecContext(clean, "ROLLBACK"); failed != nil {
			conn.Destroy() // with whatever was open on it
		}
	}
	if q.Reads && err == nil {
		lines = lines[1:]
	}
	return lines, server.Ours(err, q.Table)
}

// reading is a query whose answer begins with ReadsNow, and that may skip what is locked. On Galera
// it reads what other nodes have committed.
func reading(query string, galera bool) string {
	if !strings.HasPrefix(query, "(") {
		query = "(" + query + ")"
	}
	settings := []string{sqltext.SomeWait}
	if galera {
		settings = append(settings, "wsrep_sync_wait=1")
	}
	return sqltext.OnMariaDB(settings...) + "(SELECT " + client.ReadsNow + ") UNION ALL " + query
}

// runAlone runs statements in a transaction of their own. What a caller's pool has left open is
// committed, as START TRANSACTION would.
func runAlone(ctx context.Context, conn client.Conn, script []string, reads bool) (lines []string, err error) {
	link := conn.Link()
	switch {
	case conn.Owned != nil: // which has no autocommit, and may have other settings from work
		settings := client.ReadCommitted
		if conn.Owned.Lease == 0 {
			settings = client.Settings
		}
		return link.Ask(ctx, append([]string{settings}, append(script, "COMMIT")...)...)
	case reads:
		return conn.ReadNow(ctx, script[0])
	}
	script = slices.Concat([]string{"COMMIT", client.ReadCommitted, "START TRANSACTION"}, script, []string{"COMMIT"})
	// The server sees them one by one, and this process may be stopped in between.
	err = client.Setting(ctx, conn.Conn.Conn, func() (err error) {
		lines, err = link.Ask(ctx, script...)
		return err
	}, "wait_timeout", sqltext.Seconds(interrupt.CleanUp))
	return lines, err
}

// Run implements dialects.Session. Without autocommit, what it writes behind the end of the
// transaction is committed by nobody: work may have set it.
func (s *session) Run(ctx context.Context, q dialects.Query) ([]string, error) {
	return run(ctx, s.conn.Link(), q, "SET autocommit = 0")
}

func run(ctx context.Context, to client.Link, q dialects.Query, front ...string) ([]string, error) {
	script, err := kinds.StatementsOf(q)
	if err != nil {
		return nil, err
	}
	clean, cancel := interrupt.Detached(ctx) // the connection is closed when ctx ends
	defer cancel()
	lines, err := to.Ask(clean, append(front, script...)...)
	if server.Broken(err) {
		return nil, server.Lost(err)
	}
	return lines, server.Ours(err, q.Table)
}
