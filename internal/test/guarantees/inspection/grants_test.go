package inspection

import (
	"bytes"
	"context"
	"database/sql"
	"net/url"
	"os"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
)

// What Inspect and Break show and do for a user with few rights, as documented.
func TestGrants(t *testing.T) {
	t.Parallel()
	testbed.Each(t, testbed.Engines, func(t *testing.T, e *testbed.Engine) {
		switch {
		case e.Postgres:
			grantsOnPostgres(t, e)
		case e.MariaDB:
			grantsOnMySQL(t, e, "GRANT PROCESS ON *.*")
		default:
			grantsOnMySQL(t, e, "GRANT SELECT ON performance_schema.*")
		}
	})
}

// visitor is a Locker of a user that may do no more than lock.
func visitor[Tx any](t *testing.T, f *testbed.Fixture[Tx], dsn string) *txlock.Locker[Tx] {
	t.Helper()
	locks := f.AnotherBy(t, dsn, 8)
	testbed.Unlock(t, testbed.Lock(t, locks.Mutex(f.Key("may lock"))))
	return locks
}

func grantsOnPostgres(t *testing.T, e *testbed.Engine) {
	f := testbed.NewFixture(t, e, testbed.PostgresPgx[0])
	role := f.Label
	f.AsAdmin(t, "CREATE ROLE "+role+" LOGIN")
	f.AsAdmin(t, "GRANT SELECT, UPDATE ON "+f.Table()+" TO "+role)
	t.Cleanup(func() {
		f.AsAdmin(t, "DROP OWNED BY "+role)
		f.AsAdmin(t, "DROP ROLE "+role)
	})
	u := must.Get(url.Parse(f.DSNFor(f.Label+"v", "", nil)))(t)
	u.User = url.User(role)
	locks := visitor(t, f, u.String())

	key := f.Key("k")
	session, release := f.HoldInDo(t, key)
	granted := f.Queue(t, 2, key)
	h := must.Get(locks.Inspect(background, key))(t)
	require.Len(t, h, 1)
	require.Equal(t, key, h[0].Key)
	require.Equal(t, session, h[0].Holder.ID)
	require.Equal(t, f.Label, h[0].Holder.Application)
	require.NotEmpty(t, h[0].Holder.User)
	require.NotZero(t, h[0].Holder.Process)
	require.Len(t, h[0].Waiters, 2)
	require.Greater(t, h[0].Waiters[0].For, h[0].Waiters[1].For)
	require.Empty(t, h[0].Holder.Statement)
	require.Empty(t, h[0].Holder.Host)
	require.Zero(t, h[0].Holder.Since)
	require.ErrorContains(t, locks.Break(background, h[0]), "pg_signal_backend")

	f.AsAdmin(t, "GRANT pg_read_all_stats TO "+role)
	h = must.Get(locks.Inspect(background, key))(t)
	require.NotEmpty(t, h[0].Holder.Statement)
	require.NotEmpty(t, h[0].Holder.Host)
	require.WithinDuration(t, time.Now(), h[0].Holder.Since, 10*time.Second)
	require.NoError(t, release())
	for range 2 {
		require.NoError(t, (<-granted).Unlock(background))
	}
}

func grantsOnMySQL(t *testing.T, e *testbed.Engine, views string) {
	f := testbed.NewFixture(t, e, testbed.MySQLOpened())
	user := testbed.OrdinaryUser(t, f, "")
	locks := visitor(t, f, user.FormatDSN())

	key := f.Key("k")
	session, release := f.HoldInDo(t, key)
	granted := f.Queue(t, 2, key)
	look := func() (h []txlock.Holding, err error) {
		f.Apart(func() { h, err = locks.Inspect(background, key) })
		return h, err
	}
	require.ErrorContains(t, testbed.ErrorOf(look()), views)
	f.AsAdmin(t, views+" TO "+user.User)
	locks = visitor(t, f, user.FormatDSN()) // a session keeps the rights with which it began
	h := must.Get(look())(t)
	require.Len(t, h, 1)
	require.Equal(t, key, h[0].Key)
	require.Equal(t, session, h[0].Holder.ID)
	require.NotEmpty(t, h[0].Holder.User)
	require.WithinDuration(t, time.Now(), h[0].Holder.Since, 10*time.Second)
	require.Len(t, h[0].Waiters, 2)
	require.Contains(t, h[0].Waiters[0].Statement, "FOR UPDATE")
	f.Apart(func() { require.ErrorContains(t, locks.Break(background, h[0]), "CONNECTION_ADMIN") })
	require.NoError(t, release())
	for range 2 {
		require.NoError(t, (<-granted).Unlock(background))
	}
}

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
	held := testbed.Lock(t, f.Locks.Mutex(key))
	defer func() { require.NoError(t, held.Unlock(background)) }()
	err := testbed.Misses(t, other.Locks.Mutex(key))
	require.NotContains(t, err.Error(), "process")
	// On a busy machine the server may not show it in time.
	process := strconv.Itoa(os.Getpid())
	named := regexp.MustCompile(`; session \d+ \(process ` + process + ` on .*, since 20.*\) holds it$`)
	eventually.True(t, "the holder is named", func() bool {
		_, err := other.Locks.Mutex(key).Within(50 * time.Millisecond).Lock(background)
		require.ErrorIs(t, err, txlock.ErrNotAcquired)
		return named.MatchString(err.Error())
	})
	t.Log(err)
}

func breakOfStranger(t *testing.T, e *testbed.Engine) {
	f := innodbFixture(t, e)
	table := f.MakeTable(t, "id int auto_increment primary key, filler char(100) default ''")
	grants := []string{"GRANT CONNECTION_ADMIN ON *.*", "GRANT SELECT ON performance_schema.*"}
	if e.MariaDB {
		grants = []string{"GRANT CONNECTION ADMIN, PROCESS ON *.*"}
	}
	breaker := visitor(t, f, testbed.OrdinaryUser(t, f, "b", grants...).FormatDSN())
	key := f.Key("stranger")
	written, ended, broken := make(chan error, 1), make(chan error, 1), make(chan bool)
	locks := visitor(t, f, testbed.OrdinaryUser(t, f, "a").FormatDSN())
	go func() {
		ended <- locks.Mutex(key).Do(background, func(ctx context.Context, tx *sql.Tx) error {
			err := f.Exec(ctx, tx, "INSERT INTO "+table+" (id) VALUES (NULL), (NULL), (NULL), (NULL)")
			for range 6 { // undoing this takes a while, but less than Break waits
				if err == nil {
					err = f.Exec(ctx, tx, "INSERT INTO "+table+" (filler) SELECT a.filler FROM "+table+" a, (SELECT "+
						"1 UNION ALL SELECT 2 UNION ALL SELECT 3) b")
				}
			}
			written <- err
			<-broken // a loss on a caller's pool is noticed by the next statement
			return f.Exec(ctx, tx, "DO 0")
		})
	}()
	require.NoError(t, <-written)
	h := f.Look(t, key)
	require.Len(t, h, 1)
	f.Apart(func() { require.NoError(t, breaker.Break(background, h[0])) })
	close(broken)
	f.Free(t, key)
	require.ErrorIs(t, <-ended, txlock.ErrLost)

	if e.Kind == servers.MySQL { // a session of root
		_, release := f.HoldInDo(t, key)
		require.ErrorContains(t, breaker.Break(background, f.Look(t, key)[0]), "SYSTEM_USER")
		require.NoError(t, release())
	}
}

// A process on mysql.Open writes nothing to stderr when its session is ended.
func silentWhenBroken(t *testing.T, e *testbed.Engine) {
	f := innodbFixture(t, e)
	key := f.Key("silent")
	var written bytes.Buffer
	holder := e.StartPartner(t, testbed.Part{
		Plays: "hold", DSN: f.DSNFor(f.Label, "", nil), Key: key, Lease: time.Minute, Stderr: &written,
	})
	require.Equal(t, "asks", holder.Next(t))
	require.Equal(t, "holds", holder.Next(t)) // the server shows the holder before the process knows
	shown := f.Look(t, key)
	require.Len(t, shown, 1)
	f.Apart(func() { require.NoError(t, f.Locks.Break(background, shown[0])) })
	require.Equal(t, "lost", holder.Next(t))
	require.Equal(t, "lost", holder.Next(t))
	holder.Ended(t)
	require.Empty(t, written.String())
}

func timeZones(t *testing.T, e *testbed.Engine) {
	f := innodbFixture(t, e)
	var err error
	key := f.Key("zone")
	_, release := f.HoldInDo(t, key)
	locks := f.AnotherBy(t, f.DSNFor(f.Label, "", url.Values{"time_zone": {"'+07:00'"}}), testbed.PoolSize)
	defer locks.Close()
	var h []txlock.Holding
	f.Apart(func() { h, err = locks.Inspect(background, key) })
	require.NoError(t, err)
	require.Len(t, h, 1)
	const soon = 10 * time.Minute // not 7 hours; the look itself may come late
	require.WithinDuration(t, time.Now(), h[0].Holder.Since, soon)
	require.Less(t, h[0].Holder.For, soon)
	require.NoError(t, release())
}
