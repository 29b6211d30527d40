package inspection

import (
	"bytes"
	"context"
	"database/sql"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

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
