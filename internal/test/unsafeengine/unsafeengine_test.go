// Package unsafeengine_test runs Check against a server that accepts every statement of a lock and
// locks nothing. It is a module of its own, so that the server's dependencies stay out of the
// user's go.sum.
package unsafeengine_test

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	sqle "github.com/dolthub/go-mysql-server"
	"github.com/dolthub/go-mysql-server/memory"
	"github.com/dolthub/go-mysql-server/server"
	engine "github.com/dolthub/go-mysql-server/sql"
	_ "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/internal/test/must"
)

func TestCheckRefusesAnEngineThatLocksNothing(t *testing.T) {
	// If the row were locked after all, the second session would wait until this ends. Beside busy
	// neighbours the engine takes half a minute for Install.
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	db := goMySQLServer(t)

	var log bytes.Buffer
	// This engine is slow: 65536 slots take half a minute.
	locks := txlock.New(mysql.New(db), txlock.WithSlots(16),
		txlock.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
	err := locks.Install(ctx)
	require.ErrorIs(t, err, txlock.ErrUnsafeEngine)
	require.ErrorContains(t, err, "this is Dolt", "known by its name")
	_, err = locks.Rows("things", "id", 1).TryLock(ctx)
	require.ErrorIs(t, err, txlock.ErrUnsafeEngine)

	require.NoError(t, engine.SystemVariables.AssignValues(map[string]any{"version_comment": "not known"}))
	db.SetMaxIdleConns(0)    // sessions that are open keep the old name
	err = locks.Install(ctx) // which ends with the proof
	require.ErrorIs(t, err, txlock.ErrUnsafeEngine)
	require.NotContains(t, err.Error(), "Dolt")

	var holders []*sql.Tx
	for _, session := range []string{"first", "second"} {
		tx := must.Get(db.BeginTx(ctx, nil))(t)
		holders = append(holders, tx)
		var slot int
		err = tx.QueryRowContext(ctx, "SELECT slot FROM txlock_slots WHERE slot = 2 FOR UPDATE").Scan(&slot)
		require.NoError(t, err, "the %s session does not get the row; an engine that locks proves nothing here",
			session)
		require.Equal(t, 2, slot)
	}
	for _, tx := range holders { // both are open until here
		require.NoError(t, tx.Rollback())
	}

	require.ErrorIs(t, locks.Check(ctx), txlock.ErrUnsafeEngine)
	require.NoError(t, ctx.Err())
	require.Contains(t, log.String(), "level=ERROR")
	require.Contains(t, log.String(), "does not exclude")
}

// goMySQLServer starts go-mysql-server in this process and connects to it.
func goMySQLServer(t *testing.T) *sql.DB {
	t.Helper()
	database := memory.NewDatabase("shop")
	database.EnablePrimaryKeyIndexes()
	provider := memory.NewDBProvider(database)
	memoryEngine := sqle.NewDefault(provider)
	listener := must.Get(net.Listen("tcp", "127.0.0.1:0"))(t)
	config := server.Config{Listener: listener}
	s := must.Get(server.NewServer(config, memoryEngine, engine.NewContext, memory.NewSessionBuilder(provider), nil))(t)
	stopped := make(chan error, 1)
	go func() { stopped <- s.Start() }()
	t.Cleanup(func() {
		require.NoError(t, s.Close())
		require.NoError(t, <-stopped)
		// Close ends the engine's goroutines through a context of its own, and reports that.
		require.ErrorIs(t, memoryEngine.Close(), context.Canceled)
	})

	db := must.Get(sql.Open("mysql", fmt.Sprintf("root@tcp(%s)/shop", listener.Addr())))(t)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return db
}
