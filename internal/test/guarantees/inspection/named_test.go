package inspection

import (
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// The error of a wait that its deadline has ended says who holds the key. That of a try does not,
// and asks nobody.
func TestWaitNamesTheHolder(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		switch {
		case e.Kind == servers.Postgres18:
			t.Run(e.Name, func(t *testing.T) { namesTheHolder(t, e, testbed.PgxOpened()) })
		case e.Kind == servers.MySQL:
			t.Run(e.Name, func(t *testing.T) { namesTheHolder(t, e, testbed.MySQLOpened()) })
		}
	}
}

func namesTheHolder[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	t.Parallel()
	f := testbed.NewFixture(t, e, c)
	other := testbed.NewSizedFixture(t, e, c, 4, "")
	key := f.Key("k")
	held, err := f.Locks.Mutex(key).Lock(background)
	require.NoError(t, err)
	defer func() { require.NoError(t, held.Unlock(background)) }()
	_, err = other.Locks.Mutex(key).TryLock(background)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	require.NotContains(t, err.Error(), "process")
	// On a busy machine the server may not show it in time.
	process := strconv.Itoa(os.Getpid())
	named := regexp.MustCompile(`; session \d+ \(process ` + process + ` on .*, since 20.*\) holds it$`)
	eventually.True(t, "the holder is named", func() bool {
		_, err = other.Locks.Mutex(key).Within(50 * time.Millisecond).Lock(background)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		return named.MatchString(err.Error())
	})
	t.Log(err)
}
