package installation

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// identity asks who the server is: for the extensions that make it a node of a cluster whose nodes
// all take writes. Locks of either kind stay on their node, and rows travel later.
//
// Engines that speak the protocol, and lack what a lock needs, fail by themselves: CockroachDB has
// no pg_advisory_xact_lock before 26.2, YugabyteDB none by default.
var identity = sqltext.Statement{
	SQL: "select extname::text from pg_extension where extname in ('pgactive', 'bdr') order by 1",
}

// Identity is what is known of the servers of a pool, which are all alike.
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
	return i.judge(columns[0])
}

// judge judges the answer to identity.
func (i *Identity) judge(extensions []string) error {
	if len(extensions) > 0 {
		return manyWriters("it has the extension " + strings.Join(extensions, ", "))
	}
	i.known.Store(true)
	return nil
}

func manyWriters(reason string) error {
	return fmt.Errorf("%w: all nodes of its cluster take writes (%s), and row locks exclude the sessions of one node "+
		"only", dialects.ErrUnsafeEngine, reason)
}
