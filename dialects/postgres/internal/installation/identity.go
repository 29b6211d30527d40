package installation

import (
	"context"
	"strings"
	"sync/atomic"

	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/locktable"
)

// identity asks who the server is: for the extensions that make it a node of a cluster whose nodes
// all take writes. Locks of either kind stay on their node, and rows travel later.
//
// Engines that speak the protocol, and lack what a lock needs, fail by themselves: CockroachDB has
// no pg_advisory_xact_lock before 26.2, YugabyteDB none by default.
//
// It also asks for the settings without which the library's texts and the caller's names would mean
// something else: see [server.Unfit]. Where pg_catalog is not the first schema in which an
// operator is looked for, anybody's could run. So those of this text say whose they are.
var identity = sqltext.With(identifier.Qualified(
	"select concat('it has the extension ', extname) from pg_extension " +
		"where extname operator(pg_catalog.=) any(array['pgactive', 'bdr']::name[]) " +
		"union all select concat('client_encoding=', current_setting('client_encoding')) " +
		"union all select concat('standard_conforming_strings=', current_setting('standard_conforming_strings')) " +
		"union all select concat('search_path=', array_to_string(current_schemas(true), ','))"))

// Identity is what is known of the servers of a pool, and its sessions, which are all alike.
type Identity struct{ known atomic.Bool }

// Ask refuses a server that is known not to exclude. It asks until one was not refused, and then no
// more. It comes before the first lock, on the connection of that lock.
func (i *Identity) Ask(ctx context.Context, q client.Line) error {
	if i.known.Load() {
		return nil
	}
	columns, err := q.Run(ctx, sqltext.Script{identity})
	if err != nil {
		return err
	}
	for _, reason := range columns[0] {
		setting, value, is := strings.Cut(reason, "=")
		if !is {
			return locktable.ManyWriters(reason)
		}
		if err := server.Unfit(setting, value); err != nil {
			return err
		}
	}
	i.known.Store(true)
	return nil
}
