package guarantees

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/wire"
)

// RolledBack shows that a session learns of the end of its transaction from the next heartbeat,
// though its connection is as it was: a proxy, or a server that restarts and keeps its connections,
// has ended it.
func RolledBack[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	behindOnesBack := map[string]func(*wire.Proxy){"by a proxy": func(p *wire.Proxy) { p.RollBack(wire.MySQL) }}
	if e.Postgres {
		behindOnesBack["by a proxy"] = func(p *wire.Proxy) { p.RollBack(wire.PostgreSQL) }
	} else {
		behindOnesBack["by a restart of Aurora"] = func(p *wire.Proxy) {
			p.RollBackWith(1105, "The last transaction was aborted due to Zero Downtime Restart. Please retry.")
		}
	}
	for by, rollBack := range behindOnesBack {
		t.Run(by, func(t *testing.T) {
			t.Parallel()
			t.Run("and a heartbeat tells", func(t *testing.T) { t.Parallel(); heartbeatTells(t, e, c, rollBack) })
			t.Run("and a nested call tells", func(t *testing.T) { t.Parallel(); nestedCallTells(t, e, c, rollBack) })
		})
	}
}

func heartbeatTells[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], rollBack func(*wire.Proxy)) {
	f, proxy := leased(t, e, c, 6*time.Second)
	leads := candidacy(t, f.Locks.Election(f.Key("election"), "me"))
	first := testbed.Receive(t, leads.terms)
	held := map[string]*txlock.Lock{}
	for kind, m := range map[string]*txlock.Mutex[Tx]{
		"Lock": f.Locks.Mutex(f.Key("alone")), "Shared": f.Locks.Mutex(f.Key("shared")).Shared(),
		"a permit": f.Locks.Semaphore(f.Key("api"), 1),
	} {
		held[kind] = locked(t, m, background)
	}
	rollBack(proxy)
	testbed.Receive(t, first.ctx.Done())
	require.ErrorIs(t, context.Cause(first.ctx), txlock.ErrLost)
	for kind, lock := range held {
		testbed.Receive(t, lock.Context().Done())
		require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost, kind)
		require.ErrorContains(t, context.Cause(lock.Context()), "heartbeat", kind)
		require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost, kind)
	}
	second := testbed.Receive(t, leads.terms)
	require.Greater(t, second.number, first.number)
	second.end <- nil
	require.NoError(t, testbed.Receive(t, leads.over))
	f.Free(t, f.Key("alone"), f.Key("shared"))
}

// nestedCallTells: a nested lock would begin another transaction, with which heartbeats would be
// content.
func nestedCallTells[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], rollBack func(*wire.Proxy)) {
	const noHeartbeat = time.Hour
	f, proxy := leased(t, e, c, noHeartbeat)
	lock := locked(t, f.Locks.Mutex(f.Key("outer")), background)
	rollBack(proxy)
	_, err := f.Locks.Mutex(f.Key("inner")).Lock(lock.Context())
	require.ErrorIs(t, err, txlock.ErrLost)
	require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	f.Free(t, f.Key("outer"), f.Key("inner"))
}
