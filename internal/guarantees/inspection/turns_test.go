package inspection

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/eventually"
	"github.com/txlock/txlock/internal/guarantees/testbed"
	"github.com/txlock/txlock/internal/servers"
)

// A Locker reads MariaDB's views in one call at a time: they serve an old picture to whoever reads
// them too soon after another.
func TestCrowdedViewsMariaDB(t *testing.T) {
	t.Parallel()
	server, err := servers.Start(background, servers.MariaDB, servers.Options{})
	require.NoError(t, err)
	e := testbed.Owned(t, server)
	t.Run("who looks for one holder does not wait for who looks for many", func(t *testing.T) { inspectsInTurns(t, e) })
	t.Run("a holder is looked for until the picture is not old any more",
		func(t *testing.T) { inspectsOldPictures(t, e) })
	t.Run("an old picture of another reader is not shown", func(t *testing.T) { inspectsTheNewest(t, e) })
}

// crowd is a lock table whose slots one session holds, and a Locker on it.
func crowd(t *testing.T, e *testbed.Engine, slots int) (
	f *testbed.Fixture[*sql.Tx], locks *txlock.Locker[*sql.Tx], session string,
) {
	t.Helper()
	f = innodbFixture(t, e)
	locks, _, name := slotTable(t, f, slots)
	_, session = outsider(t, f, "SELECT COUNT(*) FROM "+name+" FOR UPDATE")
	return f, locks, session
}

// probesOf are the numbers of the statements that probe slots of the fixture now. They come from
// the process list, which is not one of InnoDB's views.
func probesOf(t *testing.T, f *testbed.Fixture[*sql.Tx]) (numbers []int) {
	t.Helper()
	rows, err := f.Admin.Query("SELECT QUERY_ID FROM information_schema.processlist WHERE DB = '" + f.Label +
		"' AND INFO LIKE '%/* txlock probe */%'")
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var number int
		require.NoError(t, rows.Scan(&number))
		numbers = append(numbers, number)
	}
	require.NoError(t, rows.Err())
	return numbers
}

type inspection struct {
	shown []txlock.Holding
	err   error
}

func inspectLater(locks *txlock.Locker[*sql.Tx], keys ...string) <-chan inspection {
	ended := make(chan inspection, 1)
	go func() {
		shown, err := locks.Inspect(background, keys...)
		ended <- inspection{shown, err}
	}()
	return ended
}

func inspectsInTurns(t *testing.T, e *testbed.Engine) {
	const slots = 512 // probing them takes all the time there is, 5 s
	f, locks, session := crowd(t, e, slots)
	late := true
	// on a busy machine the time may be over before they had enough turns: the best of a few tries
	// counts
	for try := 0; late && try < 3; try++ {
		all := inspectLater(locks)
		eventually.Every(t, "it probes", time.Millisecond, func() bool { return len(probesOf(t, f)) > 0 })
		first, second := inspectLater(locks, "one"), inspectLater(locks, "another")
		late = false
		for _, few := range []<-chan inspection{first, second} {
			got := <-few
			require.NoError(t, got.err)
			require.Len(t, got.shown, 1)
			late = late || got.shown[0].Holder.ID == ""
			require.Contains(t, []string{session, ""}, got.shown[0].Holder.ID)
			require.Empty(t, got.shown[0].Waiters)
		}
		late = late || len(all) > 0
		got := <-all
		require.NoError(t, got.err)
		require.Len(t, got.shown, slots)
		for _, h := range got.shown {
			require.Contains(t, []string{session, ""}, h.Holder.ID)
			require.Empty(t, h.Waiters, "others' probes are not shown")
		}
	}
	require.False(t, late, "who looks for many was at the end before them")
}

func inspectsOldPictures(t *testing.T, e *testbed.Engine) {
	const probes = 6 // more than the fewest looks that an answer takes
	f, locks, session := crowd(t, e, 1)
	old := func() { f.Total(t, "SELECT COUNT(*) FROM information_schema.innodb_trx") }
	old()
	seen := map[int]bool{}
	begun := time.Now()
	ended := inspectLater(locks, "key")
	// On a busy machine a pause may be long enough for a new picture. Enough of the 5 s must be
	// left for a look at it.
	for len(seen) < probes && len(ended) == 0 && time.Since(begun) < 2500*time.Millisecond {
		old()
		for _, number := range probesOf(t, f) {
			seen[number] = true
		}
		<-time.After(time.Millisecond)
	}
	got := <-ended
	require.NoError(t, got.err)
	require.Len(t, got.shown, 1)
	require.Equal(t, session, got.shown[0].Holder.ID)
}

// Another reader keeps the picture old from before the row changed hands until Inspect begins.
func inspectsTheNewest(t *testing.T, e *testbed.Engine) {
	f := innodbFixture(t, e)
	locks, _, name := slotTable(t, f, 1)
	old := func() { f.Total(t, "SELECT COUNT(*) FROM information_schema.innodb_trx") }
	take := "SELECT COUNT(*) FROM " + name + " FOR UPDATE"
	queue := func() (tx *sql.Tx, session string, granted <-chan error) {
		tx, session = outsider(t, f, "SELECT 1")
		answer := make(chan error, 1)
		go func() { answer <- f.Exec(background, tx, take) }()
		eventually.Every(t, "it waits", time.Millisecond, func() bool {
			old()
			return f.Total(t, "SELECT COUNT(*) FROM information_schema.processlist WHERE ID = "+session+
				" AND INFO = '"+take+"'") == 1
		})
		return tx, session, answer
	}
	first, _ := outsider(t, f, take)
	second, session, granted := queue()
	f.Waiters(t, 1) // the picture has the first as the holder
	require.NoError(t, f.End(background, first, false))
	require.NoError(t, <-granted)
	third, waiter, granted := queue()
	shown, err := locks.Inspect(background)
	require.NoError(t, err)
	require.Len(t, shown, 1)
	require.Equal(t, session, shown[0].Holder.ID)
	require.Len(t, shown[0].Waiters, 1)
	require.Equal(t, waiter, shown[0].Waiters[0].ID)
	require.NoError(t, f.End(background, second, false))
	require.NoError(t, <-granted)
	require.NoError(t, f.End(background, third, false))
}
