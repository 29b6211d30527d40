package installation

import (
	"context"
	"strconv"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/exclusion"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// Check does what dialects.Driver promises. It proves exclusion on two connections. They go the way
// of a lock, with its lease and by its turnstile. So they are in nobody's way when their client
// dies, and do not come in between while another renews what it holds.
func (i Installer) Check(ctx context.Context, table string, lease time.Duration) error {
	quoted, err := sqltext.QuoteTable(table)
	if err != nil {
		return err
	}
	return i.with(ctx, func(holder client.Line) error {
		slots, err := slotsOf(ctx, holder, table)
		if err != nil {
			return err
		}
		if err := refuseManyWriters(ctx, holder, quoted); err != nil {
			return err
		}
		return exclusion.Beside(ctx, i.with, func(rival client.Line) error {
			proof, cancel := context.WithTimeout(ctx, exclusion.Patience)
			defer cancel()
			conn := func(q client.Line) *checkConn {
				return &checkConn{Line: q, table: table, quoted: quoted, lease: lease}
			}
			return exclusion.Prove(proof, slots, conn(holder), conn(rival), true)
		})
	})
}

// refuseManyWriters refuses a node of a cluster whose nodes all take writes. What identity does not
// ask for may serve other clusters too: Spock, and a lock table that is replicated both ways.
func refuseManyWriters(ctx context.Context, q client.Line, quoted string) error {
	columns, err := q.Run(ctx, sqltext.Script{sqltext.With("select concat('it has the extension ', extname) "+
		"from pg_extension where extname in ('pgactive', 'bdr', 'spock') union all "+
		"select concat('subscription ', s.subname, ' brings rows into the lock table, and publication ', p.pubname, "+
		"' carries them out') from pg_subscription s join pg_subscription_rel r on r.srsubid = s.oid "+
		"join pg_class c on c.oid = r.srrelid join pg_namespace n on n.oid = c.relnamespace "+
		"join pg_publication_tables p on p.tablename = c.relname and p.schemaname = n.nspname "+
		"where s.subenabled and c.oid = $1::regclass::oid", quoted)})
	switch {
	case server.State(err) != "" && !server.Broken(err): // it knows no such things, or does not show them
		return nil
	case err == nil && len(columns[0]) > 0:
		return manyWriters(columns[0][0])
	}
	return err
}

// checkConn is a connection of Check.
type checkConn struct {
	client.Line
	table  string // as its user spells it
	quoted string
	lease  time.Duration
	begun  bool
}

// Begin implements exclusion.Conn. The transaction is that of a lock.
func (c *checkConn) Begin(ctx context.Context) error {
	c.begun = true
	_, err := c.Run(ctx, sqltext.Script{client.Begin, client.Leased(c.lease)})
	return err
}

// TryLock implements exclusion.Conn.
func (c *checkConn) TryLock(ctx context.Context, slot int, clause string, passing bool) (int, bool, error) {
	if passing {
		free, err := c.pass(ctx, slot, false)
		if err != nil || !free {
			return 0, !free && err == nil, err
		}
	}
	columns, err := c.Run(ctx, sqltext.Script{
		sqltext.With("select slot from "+c.quoted+" where slot = $1 for update "+clause, strconv.Itoa(slot)),
	})
	if server.State(err) == server.LockNotAvailable {
		return 0, true, nil
	}
	if err != nil {
		return 0, false, verdict(err)
	}
	return len(columns[0]), false, nil
}

// pass tries the turnstile of a slot.
func (c *checkConn) pass(ctx context.Context, slot int, shared bool) (granted bool, err error) {
	request := dialects.Request{Table: c.table, Ours: true, Shared: shared}
	columns, err := c.Run(ctx, sqltext.Script{
		sqltext.With("select "+sqltext.Pass(request, sqltext.Trying, "$1")+"::text", strconv.Itoa(slot)),
	})
	return err == nil && server.IsTrue(columns[0][0]), verdict(err)
}

// verdict marks errors that say nothing about the engine.
func verdict(err error) error {
	switch state := server.State(err); {
	case state == "", state == server.NoPrivilege, server.Broken(err),
		state == server.UnknownStatement, state == server.KnownStatement:
		return exclusion.NoVerdict(err)
	}
	return err
}

// TryShare implements exclusion.Conn. Beside a shared lock an exclusive one is kept out by the
// turnstile, before it comes to the row.
func (c *checkConn) TryShare(ctx context.Context, slot int, alone bool) (granted bool, err error) {
	return c.pass(ctx, slot, !alone)
}

// Rollback implements exclusion.Conn.
func (c *checkConn) Rollback(ctx context.Context) error {
	if !c.begun {
		return nil
	}
	c.begun = false
	_, err := c.Run(ctx, sqltext.Script{sqltext.Silent("rollback")})
	return err
}
