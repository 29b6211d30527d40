package installation

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// identity asks who the server is: for the extensions that make it a node of a cluster whose nodes
// all take writes. Locks of either kind stay on their node, and rows travel later.
//
// Engines that speak the protocol, and lack what a lock needs, fail by themselves: CockroachDB has
// no pg_advisory_xact_lock before 26.2, YugabyteDB none by default.
//
// It also asks for the settings without which the library's texts and the caller's names would mean
// something else. See [server.UnfitError].
var identity = sqltext.Statement{
	SQL: "select 'it has the extension ' || extname::text from pg_extension where extname in ('pgactive', 'bdr') " +
		"union all select concat_ws(' ', 'set', name, current_setting(name), needed) from (values " +
		"('client_encoding', 'UTF8'), ('standard_conforming_strings', 'on')) settings (name, needed) " +
		"where current_setting(name) <> needed",
}

// Identity is what is known of the servers of a pool, and its sessions, which are all alike.
type Identity struct{ known atomic.Bool }

// Ask refuses a server that is known not to exclude. It asks until one was not refused, and then no
// more. It comes before the first lock, on the connection of that lock.
func (i *Identity) Ask(ctx context.Context, q client.Line) error {
	if i.known.Load() {
		return nil
	}
	columns, err := q.Run(ctx, sqltext.Script{identity})
	if err == nil {
		err = i.judge(columns[0])
	}
	return err
}

// judge judges the answer to identity.
func (i *Identity) judge(reasons []string) error {
	for _, reason := range reasons {
		var unfit server.UnfitError
		if n, _ := fmt.Sscanf(reason, "set %s %s %s", &unfit.Setting, &unfit.Value, &unfit.Needed); n == 3 {
			return unfit
		}
		return manyWriters(reason)
	}
	i.known.Store(true)
	return nil
}

func manyWriters(reason string) error {
	return fmt.Errorf("%w: all nodes of its cluster take writes (%s), and row locks exclude the sessions of one node "+
		"only", dialects.ErrUnsafeEngine, reason)
}
