package engines

import (
	"context"
	"database/sql"
	"regexp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// No connection says goodbye (COM_QUIT) with a transaction open, or a lock of the server's: a
// router that keeps the server's session for the next client would keep that too, for as long as
// nobody comes.
func TestNoGoodbyeInATransaction(t *testing.T) {
	t.Parallel()
	eachOwnMySQL(t, saysNoGoodbye, "--general-log=1", "--log-output=TABLE")
}

func saysNoGoodbye(t *testing.T, e *testbed.Engine, c testbed.Client[*sql.Tx]) {
	f := testbed.NewSizedFixture(t, e, c, 4, "", txlock.WithFencing())
	m := f.Locks.Mutex(f.Key("a"))
	numbered, err := m.Lock(background) // the server's run, which may take a second
	require.NoError(t, err)
	require.NoError(t, numbered.Unlock(background))
	for _, statement := range []string{
		"SELECT 1", "COMMIT", "LOCK TABLES " + f.Table() + " READ", "SELECT SLEEP(60)",
	} {
		ctx, cancel := context.WithTimeout(background, time.Second)
		_ = m.Do(ctx, func(ctx context.Context, tx *sql.Tx) error {
			lock, err := f.Locks.Mutex(f.Key("inner")).Lock(ctx)
			require.NoError(t, err)
			defer lock.Unlock(background)
			return f.Exec(ctx, tx, statement)
		})
		cancel()
		_, _ = m.Exec(background, txlock.Statement{SQL: "SELECT 1"}, txlock.Statement{SQL: "COMMIT"})
	}
	held, err := m.Lock(background)
	require.NoError(t, err)
	_, err = m.Within(time.Second).Lock(background)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.NoError(t, f.Locks.Close())
	require.Error(t, held.Unlock(background))
	f.Pool.Close()
	f.Transactions(t, 0)

	said, err := e.Admin.Query("SELECT thread_id, command_type, CONVERT(argument USING utf8mb4) " +
		"FROM mysql.general_log " +
		"WHERE thread_id <> CONNECTION_ID() ORDER BY event_time")
	require.NoError(t, err)
	defer said.Close()
	begins := regexp.MustCompile(`(?i)for update|for share|^lock tables|get_lock`)
	ends := regexp.MustCompile(`(?i)^\s*(commit|rollback|set autocommit = 1)\b`)
	stays := regexp.MustCompile(`(?i)^lock tables|get_lock`) // behind the end of the transaction
	open, goodbyes := map[int]string{}, 0
	for said.Next() {
		var thread int
		var command, text string
		require.NoError(t, said.Scan(&thread, &command, &text))
		switch {
		case command == "Quit":
			goodbyes++
			require.Empty(t, open[thread], "it was open")
		case begins.MatchString(text):
			open[thread] = text
		case ends.MatchString(text) && !stays.MatchString(open[thread]):
			delete(open, thread)
		}
	}
	require.NoError(t, said.Err())
	require.Positive(t, goodbyes)
}
