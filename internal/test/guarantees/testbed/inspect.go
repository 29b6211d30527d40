package testbed

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/must"
)

// Apart calls what reads the server's views. On MariaDB it keeps a pause between two readers.
func (e *Engine) Apart(read func()) {
	if e.MariaDB {
		e.views.Ask(read)
	} else {
		read()
	}
}

// Look is Inspect of keys.
func (f *Fixture[Tx]) Look(t *testing.T, keys ...string) (holdings []txlock.Holding) {
	t.Helper()
	f.Apart(func() {
		holdings = must.Get(f.Locks.Inspect(background, keys...))(t)
	})
	return holdings
}

// ListsHeld says whether the server lists held rows for which nobody waits, and their holders' last
// statements.
func (e *Engine) ListsHeld() bool { return !e.MariaDB }

// SessionSQL is the number that the server has for the session.
func (e *Engine) SessionSQL() string {
	if e.Postgres {
		return "SELECT pg_backend_pid()"
	}
	return "SELECT CONNECTION_ID()"
}

// HoldInDo holds a key in a Do until release is called, and returns the number of its session.
func (f *Fixture[Tx]) HoldInDo(t *testing.T, key string) (session string, release func() error) {
	t.Helper()
	held, done, ended := make(chan string, 1), make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- f.Locks.Mutex(key).Do(background, func(ctx context.Context, tx Tx) error {
			session, err := f.Query(ctx, tx, f.SessionSQL())
			held <- session
			<-done
			return err
		})
	}()
	select {
	case session = <-held:
	case err := <-ended:
		require.NoError(t, err)
		require.Fail(t, "Do has not run its work")
	}
	return session, func() error { close(done); return <-ended }
}

// Queue starts n callers of Lock, each after the one before it is in the server's queue. The test
// unlocks what they are granted.
func (f *Fixture[Tx]) Queue(t *testing.T, n int, key string) (granted chan *txlock.Lock) {
	t.Helper()
	granted = make(chan *txlock.Lock, n)
	for i := range n {
		go func() {
			lock, err := f.Locks.Mutex(key).Lock(background)
			if err == nil {
				granted <- lock
			}
		}()
		f.Waiters(t, i+1)
	}
	return granted
}

// LookAtRows is Inspect of everything, by a Locker with a lock table of the fixture's own.
func (f *Fixture[Tx]) LookAtRows(t *testing.T) []txlock.Holding {
	t.Helper()
	_, look := f.FewSlots(t)
	return look()
}

// FewSlots is a Locker with a lock table of the fixture's own, and an Inspect of everything. On
// MariaDB that probes every slot, so the table must not be shared with other tests.
func (f *Fixture[Tx]) FewSlots(t *testing.T) (few *txlock.Locker[Tx], look func() []txlock.Holding) {
	t.Helper()
	name := f.Label + ".few_slots"
	if f.Postgres {
		name = f.Label + "_few"
	}
	driver, p := f.Connect(t, f.DSNFor(f.Label, "", nil), 8)
	few = txlock.New(driver, txlock.WithTable(name), txlock.WithSlots(4))
	require.NoError(t, few.Install(background))
	t.Cleanup(func() {
		require.NoError(t, few.Close())
		p.Close()
		if f.Postgres {
			f.DropInstalled(t, name)
		}
	})
	return few, func() (holdings []txlock.Holding) {
		f.Apart(func() {
			holdings = must.Get(few.Inspect(background))(t)
		})
		return holdings
	}
}
