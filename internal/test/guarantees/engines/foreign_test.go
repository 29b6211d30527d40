package engines

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// eachForeign runs a test with each client that stands in docs/protocol.md, on each server.
func eachForeign(t *testing.T, test func(t *testing.T, e *testbed.Engine, client foreign)) {
	t.Helper()
	t.Parallel()
	for _, e := range testbed.Engines {
		for _, client := range foreignClients(e) {
			t.Run(e.Name+"/"+client.name, func(t *testing.T) {
				t.Parallel()
				test(t, e, client)
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
		functions, err := os.ReadFile("../../../../cmd/txlock/functions.sql")
		require.NoError(t, err)
		f.AsAdmin(t, s.names.Replace(string(functions)))
		t.Cleanup(func() { f.AsAdmin(t, "DROP FUNCTION "+f.Label+"_slot(text), "+f.Label+"_lock(text)") })
	}
	return s
}

// A client in another language and programs in Go exclude each other, in one queue, and Inspect
// shows all of them.
func TestForeignClients(t *testing.T) {
	eachForeign(t, func(t *testing.T, e *testbed.Engine, client foreign) {
		if e.Postgres {
			inOneQueue(t, testbed.NewFixture(t, e, testbed.PgxOpened()), client)
		} else {
			inOneQueue(t, testbed.NewFixture(t, e, testbed.MySQLOpened()), client)
		}
	})
}

func inOneQueue[Tx any](t *testing.T, f *testbed.Fixture[Tx], client foreign) {
	s := stageOf(t, f, client, f.Table())
	key := f.Key("größe")
	if client.name == "psql" {
		key = f.Key("size") // its function shows no other keys
	}
	held, err := f.Locks.Mutex(key).Lock(background)
	require.NoError(t, err)
	elsewhere := s.play(t, f.Key("elsewhere"), 0)
	elsewhere.says(t, "holds")
	elsewhere.release(t)

	first := s.play(t, key, 0)
	f.Waiters(t, 1)
	second := make(chan *txlock.Lock, 1)
	go func() {
		if lock, err := f.Locks.Mutex(key).Lock(background); err == nil {
			second <- lock
		}
	}()
	f.Waiters(t, 2)
	third := s.play(t, key, 0)
	f.Waiters(t, 3)
	shown := f.Look(t, key)[0]
	require.Len(t, shown.Waiters, 3)
	require.Equal(t, os.Getpid(), shown.Waiters[1].Process)
	for _, i := range []int{0, 2} {
		require.NotEqual(t, os.Getpid(), shown.Waiters[i].Process)
		require.Equal(t, key, shown.Waiters[i].Key)
	}

	require.NoError(t, held.Unlock(background))
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
	lock := testbed.Receive(t, second)
	f.Waiters(t, 1)
	require.NoError(t, lock.Unlock(background))
	third.says(t, "holds")
	f.Taken(t, key)
	third.release(t)
	f.Free(t, key)
}

// What one has written under the lock, the next has read, whichever language it speaks: two of each
// add to a number, 100 times in all.
func TestForeignClientsSeeEachOthersWork(t *testing.T) {
	eachForeign(t, func(t *testing.T, e *testbed.Engine, client foreign) {
		if e.Postgres {
			addedUp(t, testbed.NewFixture(t, e, testbed.PgxOpened()), client)
		} else {
			addedUp(t, testbed.NewFixture(t, e, testbed.MySQLOpened()), client)
		}
	})
}

func addedUp[Tx any](t *testing.T, f *testbed.Fixture[Tx], client foreign) {
	const times = 25
	s := stageOf(t, f, client, f.Table())
	s.counter = f.MakeTable(t, "n int")
	f.AsAdmin(t, "INSERT INTO "+s.counter+" VALUES (0)")
	key := f.Key("counter")
	var all sync.WaitGroup
	for range 2 {
		other := s.play(t, key, times)
		all.Go(func() { other.says(t, "done") })
		all.Go(func() {
			for range times {
				err := f.Locks.Mutex(key).Do(background, func(ctx context.Context, tx Tx) error {
					n, err := f.Query(ctx, tx, "SELECT n FROM "+s.counter)
					if err != nil {
						return err
					}
					number, err := strconv.Atoi(n)
					if err != nil {
						return err
					}
					return f.Exec(ctx, tx, "UPDATE "+s.counter+" SET n = "+strconv.Itoa(number+1))
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	require.Equal(t, 4*times, f.Total(t, "SELECT n FROM "+s.counter))
}

// A client that believes in another number of slots says so, and keeps nothing locked.
func TestForeignClientsCheckTheSlots(t *testing.T) {
	eachForeign(t, func(t *testing.T, e *testbed.Engine, client foreign) {
		if client.name == bareSQL {
			return // who types it looks
		}
		if e.Postgres {
			noSlot(t, e, testbed.PgxOpened(), client)
		} else {
			noSlot(t, e, testbed.MySQLOpened(), client)
		}
	})
}

func noSlot[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], client foreign) {
	f, table := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(1<<15))
	require.NoError(t, f.Locks.Install(background))
	s := stageOf(t, f, client, table)
	const key = "sku:42" // its slot is there, with another number beside it
	s.play(t, key, 0).fails(t)
	lock, err := f.Locks.Mutex(key).Within(eventually.Patience).Lock(background) // its session may still be ending
	require.NoError(t, err)
	require.NoError(t, lock.Unlock(background))
}

// The statements of the page that try, and those that share, do what TryLock and Shared do in Go.
func TestForeignTriesAndReaders(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) { triesAndReads(t, e, testbed.PgxOpened(), 0, 2) })
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) { triesAndReads(t, e, testbed.MySQLOpened(), 1, 3) })
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

	held, err := f.Locks.Mutex(key).Lock(background)
	require.NoError(t, err)
	tx, err := ask(try)
	require.ErrorContains(t, err, "no rows")
	end(tx)
	require.NoError(t, held.Unlock(background))
	tx, err = ask(try)
	require.NoError(t, err)
	f.Taken(t, key)
	end(tx)
	f.Free(t, key)

	reader, err := f.Locks.Mutex(key).Shared().Lock(background)
	require.NoError(t, err)
	tx, err = ask(share)
	require.NoError(t, err)
	require.NoError(t, reader.Unlock(background))
	f.Taken(t, key)
	another, err := f.Locks.Mutex(key).Shared().TryLock(background)
	require.NoError(t, err)
	require.NoError(t, another.Unlock(background))
	end(tx)
	f.Free(t, key)
}

// A client in another language that waits for a lock in Go, or holds one that Go waits for, is no
// trouble for renewals: the holder goes on, and nobody gets in.
func TestForeignClientsAndRenewals(t *testing.T) {
	t.Parallel()
	eachPostgres(t, func(t *testing.T, e *testbed.Engine) {
		for _, client := range foreignClients(e) {
			t.Run(client.name, func(t *testing.T) {
				t.Parallel()
				besideRenewals(t, e, client)
			})
		}
	})
}

func besideRenewals(t *testing.T, e *testbed.Engine, client foreign) {
	f := testbed.NewFixture(t, e, testbed.PgxOpened())
	impatient := testbed.NewSizedFixture(t, e, testbed.PgxOpened(), 8, "", txlock.WithLease(shortLease))
	key := f.Key("renewed")
	lock, err := impatient.Locks.Mutex(key).Lock(background)
	require.NoError(t, err)
	session := f.Look(t, key)[0].Holder.ID
	before := horizonOf(t, impatient, session).xid
	s := stageOf(t, f, client, f.Table())
	waiter := s.play(t, key, 0)
	f.Waiters(t, 1)
	eventually.Every(t, "a renewal", testbed.PollEvery, func() bool {
		now := horizonOf(t, impatient, session).xid
		return now != "" && now != before
	})
	require.NoError(t, context.Cause(lock.Context()))
	f.Waiters(t, 1)
	require.NoError(t, lock.Unlock(background))
	waiter.says(t, "holds")
	f.Taken(t, key)
	waiter.release(t)
}
