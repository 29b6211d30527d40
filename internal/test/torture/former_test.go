package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// former builds the command of the last release.
func former(t *testing.T) (command string) {
	t.Helper()
	tree := t.TempDir()
	output, err := exec.Command("../../../.ci/former", tree).CombinedOutput()
	require.NoError(t, err, string(output))
	t.Logf("the last release is %s", output)
	command = filepath.Join(tree, "txlock")
	c := exec.Command("go", "build", "-o", command, ".")
	c.Dir, c.Env = filepath.Join(tree, "cmd/txlock"), append(os.Environ(), "GOWORK=")
	output, err = c.CombinedOutput()
	require.NoError(t, err, string(output))
	return command
}

// This version on the tables of the last release: locks exclude those of the other, and what needs
// more tables, or others, is ErrNotInstalled.
func TestThisVersionOnFormerTables(t *testing.T) {
	if !tier.Full() {
		return
	}
	command := former(t)
	for _, kind := range servers.Newest() {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			ctx := context.Background()
			server := must.Get(servers.Start(ctx, kind, servers.Options{}))(t)
			t.Cleanup(func() { require.NoError(t, server.Stop()) })
			data := must.Get(openDatabase(kind, server.DSN))(t)
			t.Cleanup(func() { require.NoError(t, data.db.Close()) })
			other := formerCommand{t, command, server.URL(), data}
			require.NoError(t, other.start("install").Wait())
			if isPostgres(kind) {
				driver := must.Get(postgres.Open(ctx, server.DSN))(t)
				onFormerTables(t, other, driver)
				return
			}
			driver := must.Get(mysql.Open(ctx, server.DSN))(t)
			onFormerTables(t, other, driver)
		})
	}
}

// formerCommand is the command of the last release.
type formerCommand struct {
	*testing.T
	path, url string
	data      *database
}

func (f formerCommand) command(arguments ...string) *exec.Cmd {
	c := exec.Command(f.path, arguments...)
	c.Env = append(os.Environ(), "TXLOCK_DSN="+f.url)
	return c
}

// token is the token that it gets with the lock of a key.
func (f formerCommand) token(key string) (token int64) {
	f.Helper()
	output, err := f.command("run", key, "--", "sh", "-c", "echo $TXLOCK_TOKEN").Output()
	require.NoError(f, err)
	_, err = fmt.Sscan(string(output), &token)
	require.NoError(f, err)
	return token
}

func (f formerCommand) start(arguments ...string) *exec.Cmd {
	f.Helper()
	c := f.command(arguments...)
	require.NoError(f, c.Start())
	f.Cleanup(func() { _ = c.Process.Kill() })
	return c
}

// onFormerTables tries everything, upgrades the tables, and goes back.
func onFormerTables[Tx any](t *testing.T, other formerCommand, driver dialects.Driver[Tx]) {
	ctx := context.Background()
	locks, fenced := txlock.New(driver), txlock.New(driver, txlock.WithFencing())
	t.Cleanup(func() { require.NoError(t, locks.Close()) })
	nothing := func(context.Context, Tx) error { return nil }
	unlocked := func(lock *txlock.Lock, err error) error {
		if err == nil {
			err = lock.Unlock(ctx)
		}
		return err
	}
	works := map[string]func(m *txlock.Mutex[Tx]) error{
		"Do":     func(m *txlock.Mutex[Tx]) error { return m.TryDo(ctx, nothing) },
		"Lock":   func(m *txlock.Mutex[Tx]) error { return unlocked(m.TryLock(ctx)) },
		"Shared": func(m *txlock.Mutex[Tx]) error { return unlocked(m.Shared().TryLock(ctx)) },
		"Exec": func(m *txlock.Mutex[Tx]) error {
			_, err := m.TryExec(ctx, txlock.Statement{SQL: "SELECT 1"})
			return err
		},
	}
	for name, work := range works {
		key := "works-" + name
		require.NoError(t, work(locks.Mutex(key)), name)
		door := filepath.Join(t.TempDir(), "door")
		held := other.start("run", "--no-token", key, "--", "sh", "-c", "until [ -e "+door+" ]; do sleep 0.01; done")
		eventually.True(t, "the other version holds "+key, func() bool {
			return errors.Is(work(locks.Mutex(key)), txlock.ErrNotAcquired)
		})
		require.NoError(t, os.WriteFile(door, nil, 0o644))
		require.NoError(t, held.Wait())
		require.NoError(t, work(locks.Mutex(key)), name)

		lock := must.Get(locks.Mutex(key).Lock(ctx))(t)
		missed := other.start("run", "--no-token", "--try", "-E", "7", key, "--", "true")
		require.Error(t, missed.Wait())
		require.Equal(t, 7, missed.ProcessState.ExitCode(), "the other version finds it held")
		require.NoError(t, lock.Unlock(ctx))
	}
	ran, err := locks.Once("once").Do(ctx, nothing)
	require.True(t, ran)
	require.NoError(t, err)
	again := other.start("once", "once", "--", "false")
	require.NoError(t, again.Wait(), "the other version finds it marked")

	// Before Install: it mends what tokens are drawn from before it finds the other tables.
	if err := unlocked(fenced.Mutex("t").TryLock(ctx)); strings.HasPrefix(other.url, "postgres") {
		require.ErrorIs(t, err, txlock.ErrNotInstalled, "a token")
	} else {
		require.NoError(t, err, "a token")
	}
	further := func() map[string]error {
		return map[string]error{
			"Lead":      locks.Election("e", "me").Lead(ctx, func(context.Context, int64) error { return nil }),
			"Semaphore": unlocked(locks.Semaphore("s", 2).TryLock(ctx)),
			"Claim":     func() error { _, err := locks.Claim("c").TryTake(ctx, "me", time.Minute); return err }(),
			"Inspect":   func() error { _, err := locks.Inspect(ctx); return err }(),
			"OnceValue": func() error {
				_, _, err := txlock.OnceValue(ctx, locks.Once("value"), nil, func(context.Context, Tx) (int, error) {
					return 1, nil
				})
				return err
			}(),
			"Install": locks.Install(ctx),
		}
	}
	for name, err := range further() {
		require.ErrorIs(t, err, txlock.ErrNotInstalled, name)
	}

	drop := func() {
		must.Get(other.data.db.ExecContext(ctx, "DROP TABLE txlock_slots_leaders, txlock_slots_permits"))(t)
	}
	drop()
	require.NoError(t, locks.Install(ctx))
	for name, err := range further() {
		require.NoError(t, err, name)
	}
	lock, err := fenced.Mutex("key").TryLock(ctx)
	require.NoError(t, unlocked(lock, err), "a token")
	token := other.token("key")
	require.Positive(t, token, "the other version goes on, with a token")
	if strings.HasPrefix(other.url, "postgres") { // where tokens of both versions are in one order
		require.Greater(t, token, lock.Token())
		lock, err = fenced.Mutex("key").TryLock(ctx)
		require.NoError(t, unlocked(lock, err))
		require.Greater(t, lock.Token(), token)
	}
	require.Error(t, other.start("run", "--permits", "2", "key", "--", "true").Wait(), "it has no permits")

	drop()
	require.NoError(t, other.start("install").Wait(), "the way back")
	require.NoError(t, other.start("run", "--permits", "2", "key", "--", "true").Wait())
	require.NoError(t, other.start("status").Wait())
}
