//go:build unix

package main_test

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/must"
)

// Another ordinary user sees who holds a lock, but on PostgreSQL not since when. That user may not
// end the session.
func TestBreakRefused(t *testing.T) { each(t, breakRefused) }

func breakRefused(t *testing.T, e *engine) {
	e.oneAtATime(t)
	f := installed(t, e)
	holder := f.play(t, "patient", "k")
	if e.postgres {
		f.createUser(t, "")
		admin := database.Open(t, "pgx", f.url)
		database.Exec(t, admin, "GRANT SELECT, UPDATE ON txlock_slots TO "+f.database)
	} else {
		f.createUser(t, "", "SELECT, UPDATE ON "+f.database+".*", "PROCESS ON *.*", "SELECT ON performance_schema.*")
	}
	f.url = f.urlWith(t, url.User(f.database))
	r := f.run(t, "break", "--yes", "k")
	require.Equal(t, 77, r.code, r.stdout+r.stderr)
	if e.postgres {
		require.Contains(t, r.stdout, "k is held by session ")
		hidden := f.status(t, "k").Locks[0].Holder
		require.NotEmpty(t, hidden.ID)
		require.Nil(t, hidden.Since)
		require.Nil(t, hidden.For, "it is not 0")
		require.Nil(t, hidden.Idle)
	} else {
		require.Contains(t, r.stdout, "k is held for ")
	}
	holder.end(t)
}

func TestBreak(t *testing.T) { each(t, breaks) }

// Break ends the holder's session and so its command. The next in the queue gets the lock.
func breaks(t *testing.T, e *engine) {
	e.oneAtATime(t)
	f := installed(t, e)
	r := f.run(t, "break", "--yes", "k")
	require.Equal(t, result{3, "", "txlock: nobody holds k\n"}, r)

	holder := f.play(t, "polite", "k", "--lease", "1h") // a heartbeat would be a statement in between
	next := f.start(t, "run", "k", "--", "sh", "-c", "echo mine; cat")
	f.waiters(t, 1)
	require.Equal(t, 64, f.run(t, "break", "k").code)
	k := f.status(t).Locks[0]
	code, complaint := runInto(unread(t), "--dsn", f.url, "break", "--yes", "k")
	require.Equal(t, 141, code, "nobody could see whose session it is")
	require.Empty(t, complaint)
	require.Equal(t, k.Holder.ID, f.status(t).Locks[0].Holder.ID)
	r = f.run(t, "break", "--yes", "k")
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, fmt.Sprintf("k is held for X by session %s (", k.Holder.ID),
		duration.ReplaceAllString(r.stdout[:strings.Index(r.stdout, "(")+1], "X"))
	require.Contains(t, r.stdout, "1. waiting for ")
	require.NotContains(t, r.stdout, "Statement: ", "that it is idle is none")
	require.Contains(t, r.stdout, "Session "+k.Holder.ID+" was ended.")
	require.Equal(t, "SIGTERM", holder.line(t))
	require.Equal(t, 76, holder.wait(t))
	require.Equal(t, "mine", next.line(t))
	r = f.run(t, "break", "-y", "k")
	require.Zero(t, r.code, r.stderr)
	require.Equal(t, 76, next.wait(t))
}

// Of several sessions that share a lock, break ends the one that it is told.
func TestBreakReader(t *testing.T) {
	f := onPostgres(t)
	driver := must.Get(postgres.Open(context.Background(), f.url))(t)
	locks := txlock.New(driver)
	defer locks.Close()
	shared := locks.Mutex("k").Shared()
	first := must.Get(shared.Lock(context.Background()))(t)
	second := must.Get(shared.Lock(context.Background()))(t)
	readers := f.status(t).Locks[0].Readers
	require.Len(t, readers, 2)
	require.Contains(t, f.run(t, "status").stdout, "shared")
	r := f.run(t, "break", "--yes", "k")
	require.Equal(t, 64, r.code)
	require.Contains(t, r.stderr, readers[0].ID+", "+readers[1].ID)
	r = f.run(t, "break", "--yes", "--session", readers[1].ID, "k")
	require.Zero(t, r.code, r.stderr)
	require.Contains(t, r.stdout, "1 more share it, and keep it.")
	require.Contains(t, r.stdout, "Session "+readers[1].ID+" was ended.")
	r = f.run(t, "break", "--yes", "k")
	require.Zero(t, r.code, r.stderr)
	require.ErrorIs(t, first.Unlock(context.Background()), txlock.ErrLost)
	require.ErrorIs(t, second.Unlock(context.Background()), txlock.ErrLost)
}

// Another key in the same slot is not taken for the named one.
func TestBreakShared(t *testing.T) {
	t.Parallel()
	f := newFixture(t, engines[0])
	require.Zero(t, f.run(t, "install", "--slots", "1").code)
	holder := f.play(t, "patient", "k")
	r := f.run(t, "break", "--yes", "other")
	require.Equal(t, 3, r.code)
	require.Contains(t, r.stderr, `one who named it "k"`)
	holder.end(t)
}
