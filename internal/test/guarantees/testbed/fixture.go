package testbed

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"hash/crc32"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects"
)

// Fixture is a Locker on its own connections, for one test.
type Fixture[Tx any] struct {
	Client[Tx]
	*Engine
	Label string
	keys  map[string]string // by name, as long as the test runs
	Locks *txlock.Locker[Tx]
	Pool  pool
}

var labels atomic.Int64

// NewLabel names a fixture of this run. It is short: PostgreSQL shows 50 bytes of the application,
// the process and the key together. It names the process, because several runs may share a given
// server.
func NewLabel() string {
	return "test_" + strconv.FormatInt(int64(os.Getpid()), 36) + "_" + strconv.FormatInt(labels.Add(1), 36)
}

// PoolSize is the limit of a fixture's connections.
const PoolSize = 40

// NewFixture is a fixture on the shared lock table. When the test has ended, it asks the server
// whether a session of the fixture is left in a transaction.
func NewFixture[Tx any](t *testing.T, e *Engine, c Client[Tx]) *Fixture[Tx] {
	return NewSizedFixture(t, e, c, PoolSize, "")
}

// NewTable is NewFixture with a table, as MakeTable makes it.
func NewTable[Tx any](t *testing.T, e *Engine, c Client[Tx], columns string, rows ...string) (*Fixture[Tx], string) {
	t.Helper()
	f := NewFixture(t, e, c)
	return f, f.MakeTable(t, columns, rows...)
}

// NewSizedFixture is NewFixture with a limit of connections. It connects through address, if that
// is not empty.
func NewSizedFixture[Tx any](t *testing.T, e *Engine, c Client[Tx], size int, address string,
	options ...txlock.Option,
) *Fixture[Tx] {
	t.Helper()
	return newFixture(t, e, c, NewLabel(), size, address, options...)
}

// NewFixtureWithTable is NewFixture on a lock table of its own, which is not installed. Name is the
// table's as the administrator spells it.
func NewFixtureWithTable[Tx any](t *testing.T, e *Engine, c Client[Tx], options ...txlock.Option) (
	f *Fixture[Tx], name string,
) {
	t.Helper()
	label := NewLabel()
	name = label + "_locks"
	if !e.Postgres {
		name = label + ".locks"
	}
	f = newFixture(t, e, c, label, PoolSize, "", append([]txlock.Option{txlock.WithTable(name)}, options...)...)
	if e.Postgres {
		t.Cleanup(func() { f.DropInstalled(t, name) })
	}
	return f, name
}

// NewInstalled is NewFixtureWithTable, and installs the table.
func NewInstalled[Tx any](t *testing.T, e *Engine, c Client[Tx], options ...txlock.Option) (
	f *Fixture[Tx], name string,
) {
	t.Helper()
	f, name = NewFixtureWithTable(t, e, c, options...)
	require.NoError(t, f.Locks.Install(background))
	return f, name
}

func newFixture[Tx any](t *testing.T, e *Engine, c Client[Tx], label string, size int, address string,
	options ...txlock.Option,
) *Fixture[Tx] {
	t.Helper()
	if address == "" {
		e = e.node()
	}
	f := &Fixture[Tx]{Client: c, Engine: e, Label: label, keys: map[string]string{}}
	t.Cleanup(f.giveKeysBack)
	if !e.Postgres {
		f.AsAdmin(t, "CREATE DATABASE "+f.Label+" CHARACTER SET utf8mb4")
		t.Cleanup(func() { f.drop(t, "DATABASE "+f.Label) })
	}
	driver, p := c.Connect(t, e.DSNFor(f.Label, address, nil), size)
	f.Pool = p
	e.install.Do(func() { require.NoError(t, txlock.New(driver, txlock.WithTable(e.Table())).Install(background)) })
	f.Locks = txlock.New(driver, append([]txlock.Option{txlock.WithTable(e.Table())}, options...)...)
	t.Cleanup(func() {
		require.NoError(t, f.Locks.Close())
		p.Close()
		f.Transactions(t, 0)
	})
	return f
}

// usedSlots are the slots of all keys in use. The keys of parallel tests must not share one.
var usedSlots = struct {
	mu    sync.Mutex
	taken map[uint32]bool
}{taken: map[uint32]bool{}}

// SlotOf is the slot of a key in a table of so many slots.
func SlotOf(key string, slots int) uint32 { return crc32.ChecksumIEEE([]byte(key)) % uint32(slots) }

// HashOf is how the tables of semaphores and elections know a name. It never changes.
func HashOf(name string) string { return fmt.Sprintf("%x", sha256.Sum256([]byte(name))) }

// Key is a key that no other test uses.
func (f *Fixture[Tx]) Key(name string) string {
	usedSlots.mu.Lock()
	defer usedSlots.mu.Unlock()
	key, known := f.keys[name]
	if known {
		return key
	}
	key = name + ":" + strings.TrimPrefix(f.Label, "test_") // the name first: servers show the beginning
	for usedSlots.taken[SlotOf(key, dialects.DefaultSlots)] {
		key += "-" // shown as it is
	}
	f.keys[name], usedSlots.taken[SlotOf(key, dialects.DefaultSlots)] = key, true
	return key
}

func (f *Fixture[Tx]) giveKeysBack() {
	usedSlots.mu.Lock()
	defer usedSlots.mu.Unlock()
	for _, key := range f.keys {
		delete(usedSlots.taken, SlotOf(key, dialects.DefaultSlots))
	}
}

// StartWork runs a Do in the background. Its work inserts a row, waits for the end of its context,
// says when that came, and returns nil. StartWork returns when the work has begun, or failed.
func (f *Fixture[Tx]) StartWork(key, table string) (done <-chan error, ended <-chan time.Time) {
	working, result, end := make(chan struct{}), make(chan error, 1), make(chan time.Time, 1)
	go func() {
		defer close(working)
		result <- f.Locks.Mutex(key).Do(background, func(ctx context.Context, tx Tx) error {
			if err := f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"); err != nil {
				return err
			}
			working <- struct{}{}
			<-ctx.Done()
			end <- time.Now()
			return nil
		})
	}()
	<-working
	return result, end
}

// MakeTable creates a table for the fixture, with rows such as (1, 2). Every connection can use the
// name that it returns.
func (f *Fixture[Tx]) MakeTable(t *testing.T, columns string, rows ...string) string {
	t.Helper()
	name := f.Label + "." + "things"
	if f.Postgres {
		name = f.Label
	}
	f.AsAdmin(t, "CREATE TABLE "+name+" ("+columns+")")
	if f.Postgres {
		t.Cleanup(func() { f.drop(t, "TABLE "+name) })
	}
	if len(rows) > 0 {
		f.AsAdmin(t, "INSERT INTO "+name+" VALUES "+strings.Join(rows, ", "))
	}
	return name
}

// DropInstalled drops what Install has made, as far as it is there.
func (e *Engine) DropInstalled(t *testing.T, table string) {
	t.Helper()
	e.AsAdmin(t, "DROP TABLE IF EXISTS "+table+", "+table+"_runs, "+table+"_epochs, "+table+"_leaders, "+table+
		"_once, "+table+"_permits, "+table+"_claims")
	if e.Postgres {
		e.AsAdmin(t, "DROP SEQUENCE IF EXISTS "+table+"_tokens")
	}
}

// drop drops what the fixture has made. After a failed test it ends the sessions that would block
// it.
func (f *Fixture[Tx]) drop(t *testing.T, what string) {
	t.Helper()
	if t.Failed() {
		f.KillSessions(t)
	}
	f.AsAdmin(t, "DROP "+what)
}

// Total reads a number from another connection, which sees what is committed.
func (f *Fixture[Tx]) Total(t *testing.T, query string) (n int) {
	t.Helper()
	require.NoError(t, f.Admin.QueryRow(query).Scan(&n))
	return n
}

// Free fails the test unless another session can lock the keys at once.
func (f *Fixture[Tx]) Free(t *testing.T, keys ...string) {
	t.Helper()
	lock, err := f.Locks.Mutex(keys...).TryLock(context.Background())
	require.NoError(t, err, "the lock should be free")
	require.NoError(t, lock.Unlock(context.Background()))
}

// Taken fails the test unless the keys are held by somebody.
func (f *Fixture[Tx]) Taken(t *testing.T, keys ...string) {
	t.Helper()
	_, err := f.Locks.Mutex(keys...).TryLock(context.Background())
	require.ErrorIs(t, err, txlock.ErrNotAcquired, "the lock should be taken")
}

// OnceKey is a key that no other test and no other run uses. The name of its lock begins with one
// of the prefixes, and each of these has a slot of its own.
func (f *Fixture[Tx]) OnceKey(name string, prefixes ...string) string {
	usedSlots.mu.Lock()
	defer usedSlots.mu.Unlock()
	for {
		key := name + "." + rand.Text()[:8]
		var slots []uint32
		for _, prefix := range prefixes {
			slot := SlotOf(prefix+key, dialects.DefaultSlots)
			if usedSlots.taken[slot] || slices.Contains(slots, slot) {
				break
			}
			slots = append(slots, slot)
		}
		if len(slots) < len(prefixes) {
			continue
		}
		for i, prefix := range prefixes {
			f.keys[prefix+key], usedSlots.taken[slots[i]] = prefix+key, true
		}
		return key
	}
}

// OrdinaryUser is a user of MySQL or MariaDB who has no privileges but those that locks take, and
// further ones. Its name is the fixture's label, with a suffix.
func OrdinaryUser(t *testing.T, f *Fixture[*sql.Tx], suffix string, further ...string) *mysql.Config {
	t.Helper()
	name := f.Label + suffix
	user := "'" + name + "'@'%'"
	f.AsAdmin(t, "CREATE USER "+user)
	t.Cleanup(func() { f.AsAdmin(t, "DROP USER "+user) })
	grants := append([]string{"GRANT SELECT, UPDATE ON " + f.Table(), "GRANT ALL ON " + f.Label + ".*"}, further...)
	for _, grant := range grants {
		f.AsAdmin(t, grant+" TO "+user)
	}
	config, err := mysql.ParseDSN(f.DSNFor(f.Label, "", nil))
	require.NoError(t, err)
	config.User, config.Passwd = name, ""
	return config
}
