package engines

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// eachForeign runs a test with each client that stands in docs/protocol.md, on each server.
func eachForeign(t *testing.T, onPgx func(*testing.T, *testbed.Engine, testbed.Client[pgx.Tx], foreign),
	onSQL func(*testing.T, *testbed.Engine, testbed.Client[*sql.Tx], foreign),
) {
	t.Helper()
	t.Parallel()
	for _, e := range testbed.Engines {
		for _, client := range foreignClients(e) {
			t.Run(e.Name+"/"+client.name, func(t *testing.T) {
				t.Parallel()
				if e.Postgres {
					onPgx(t, e, testbed.PgxOpened(), client)
				} else {
					onSQL(t, e, testbed.MySQLOpened(), client)
				}
			})
		}
	}
}

// stageOf prepares what a client on the page relies on, for a lock table.
func stageOf[Tx any](t *testing.T, f *testbed.Fixture[Tx], client foreign, table string) *stage {
	t.Helper()
	s := &stage{Engine: f.Engine, foreign: client, label: f.Label, folder: t.TempDir()}
	s.names = strings.NewReplacer("txlock_slots", table, "txlock_slot(", f.Label+"_slot(", "txlock_lock(",
		f.Label+"_lock(")
	if client.name == "psql" {
		functions := must.Get(os.ReadFile("../../../../cmd/txlock/functions.sql"))(t)
		f.AsAdmin(t, s.names.Replace(string(functions)))
		t.Cleanup(func() { f.AsAdmin(t, "DROP FUNCTION "+f.Label+"_slot(text), "+f.Label+"_lock(text)") })
	}
	return s
}

// A client in another language and programs in Go exclude each other, in one queue, and Inspect
// shows all of them. What one has written under the lock, the next has read.
func TestForeignClients(t *testing.T) { eachForeign(t, inOneQueue[pgx.Tx], inOneQueue[*sql.Tx]) }

func inOneQueue[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], client foreign) {
	f := testbed.NewFixture(t, e, c)
	s := stageOf(t, f, client, f.Table())
	s.counter = f.MakeTable(t, "n int")
	f.AsAdmin(t, "INSERT INTO "+s.counter+" VALUES (0)")
	key := f.Key("größe")
	if client.name == "psql" {
		key = f.Key("size") // its function shows no other keys
	}
	held := testbed.Lock(t, f.Locks.Mutex(key))
	elsewhere := s.play(t, f.Key("elsewhere"))
	elsewhere.says(t, "holds")
	elsewhere.release(t)

	first := s.play(t, key)
	f.Waiters(t, 1)
	second := testbed.Go(func() error {
		return f.Locks.Mutex(key).Do(background, func(ctx context.Context, tx Tx) error {
			n, err := f.Query(ctx, tx, "SELECT n FROM "+s.counter)
			if err != nil {
				return err
			}
			return f.Exec(ctx, tx, "UPDATE "+s.counter+" SET n = "+n+" + 1")
		})
	})
	f.Waiters(t, 2)
	third := s.play(t, key)
	f.Waiters(t, 3)
	shown := f.Look(t, key)[0]
	require.Len(t, shown.Waiters, 3)
	require.Equal(t, os.Getpid(), shown.Waiters[1].Process)
	for _, i := range []int{0, 2} {
		require.NotEqual(t, os.Getpid(), shown.Waiters[i].Process)
		require.Equal(t, key, shown.Waiters[i].Key)
	}

	testbed.Unlock(t, held)
	first.says(t, "holds")
	f.Taken(t, key)
	shown = f.Look(t, key)[0]
	require.NotNil(t, shown.Holder)
	require.NotEqual(t, os.Getpid(), shown.Holder.Process)
	if f.Tells {
		require.Equal(t, key, shown.Holder.Key)
	}
	require.Len(t, shown.Waiters, 2)
	first.release(t)
	require.NoError(t, testbed.Receive(t, second))
	third.says(t, "holds")
	f.Taken(t, key)
	third.release(t)
	f.Free(t, key)
	require.Equal(t, 4, f.Total(t, "SELECT n FROM "+s.counter))
}

// A client that believes in another number of slots says so, and keeps nothing locked.
func TestForeignClientsCheckTheSlots(t *testing.T) { eachForeign(t, noSlot[pgx.Tx], noSlot[*sql.Tx]) }

func noSlot[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], client foreign) {
	if client.name == bareSQL {
		return // who types it looks
	}
	f, table := testbed.NewInstalled(t, e, c, txlock.WithSlots(1<<15))
	s := stageOf(t, f, client, table)
	const key = "sku:42" // its slot is there, with another number beside it
	s.play(t, key).fails(t)
	lock, err := f.Locks.Mutex(key).Within(eventually.Patience).Lock(background) // its session may still be ending
	require.NoError(t, err)
	testbed.Unlock(t, lock)
}

// The statements of the page that try, and those that share, do what TryLock and Shared do in Go.
func TestForeignTriesAndReaders(t *testing.T) {
	testbed.EachOpened(t,
		func(t *testing.T, e *testbed.Engine, c testbed.Client[pgx.Tx]) { triesAndReads(t, e, c, 0, 2) },
		func(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) { triesAndReads(t, e, c, 1, 3) })
}

func triesAndReads[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], try, share int) {
	f := testbed.NewFixture(t, e, c)
	key := f.Key("tried")
	_, section, found := strings.Cut(page, "\n## Shared, and without a wait\n")
	require.True(t, found)
	blocks := strings.Split(section, "```sql\n")[1:]
	require.Len(t, blocks, 4)
	ask := func(block int) (tx Tx, err error) {
		statement, _, _ := strings.Cut(blocks[block], ";")
		statement = strings.ReplaceAll(withSlot(statement, key), "txlock_slots", f.Table())
		if f.MariaDB {
			statement = strings.Replace(statement, "for share", "lock in share mode", 1)
		}
		tx = f.Guest(t)
		_, err = f.Query(background, tx, statement)
		return tx, err
	}
	end := func(tx Tx) { require.NoError(t, f.End(background, tx, false)) }

	held := testbed.Lock(t, f.Locks.Mutex(key))
	tx, err := ask(try)
	require.ErrorContains(t, err, "no rows")
	end(tx)
	testbed.Unlock(t, held)
	tx = must.Get(ask(try))(t)
	f.Taken(t, key)
	end(tx)
	f.Free(t, key)

	reader := testbed.Lock(t, f.Locks.Mutex(key).Shared())
	tx = must.Get(ask(share))(t)
	testbed.Unlock(t, reader)
	f.Taken(t, key)
	testbed.Unlock(t, testbed.TryLock(t, f.Locks.Mutex(key).Shared()))
	end(tx)
	f.Free(t, key)
}

// block is the first block of SQL below a heading of the page.
func block(t *testing.T, heading string) string {
	t.Helper()
	_, below, found := strings.Cut(page, "\n"+heading+"\n")
	require.True(t, found, heading)
	_, code, found := strings.Cut(below, "\n```sql\n")
	require.True(t, found, heading)
	code, _, _ = strings.Cut(code, "\n```")
	return code + "\n"
}

// code is what stands on the page, or behind a link of it.
func (c foreign) code(t *testing.T) string {
	t.Helper()
	if c.program == "" {
		return block(t, c.heading)
	}
	require.Contains(t, page, "(../examples/languages/"+c.program+")")
	text := must.Get(os.ReadFile("../../../../examples/languages/" + c.program))(t)
	return string(text)
}

// withSlot has the slot of a key where the page has that of sku:42.
func withSlot(text, key string) string {
	return strings.ReplaceAll(text, "2575", fmt.Sprint(testbed.SlotOf(key, dialects.DefaultSlots)))
}
