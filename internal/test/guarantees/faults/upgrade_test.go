package faults

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// A PostgreSQL 15 becomes an 18, by pg_upgrade, and by dump and restore, while locks are held and
// somebody leads. The holders are told. On the new server everything goes on that outlives a
// session: tokens, terms, markers, claims.
func TestMajorUpgrade(t *testing.T) {
	if !tier.Full() { // a version comes once a year
		return
	}
	t.Parallel()
	for name, move := range map[string]func(context.Context, *servers.Server, *servers.Server) error{
		"pg_upgrade": servers.Upgrade, "dump and restore": servers.Restore,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			majorUpgrade(t, move)
		})
	}
}

func majorUpgrade(t *testing.T, move func(ctx context.Context, former, later *servers.Server) error) {
	// With a setting, they are private instances in any case.
	former, later := postgres(t, servers.Postgres15, "-c", "wal_level=replica"),
		postgres(t, servers.Postgres18, "-c", "wal_level=replica")
	locker := func(e *testbed.Engine) *txlock.Locker[pgx.Tx] {
		driver, pool := testbed.PgxOpened().Connect(t, e.DSN, 6)
		t.Cleanup(pool.Close)
		locks := txlock.New(driver, txlock.WithFencing())
		t.Cleanup(func() { require.NoError(t, locks.Close()) })
		return locks
	}
	before := locker(former)
	require.NoError(t, before.Install(background))
	nothing := func(context.Context, pgx.Tx) error { return nil }
	ran, err := before.Once("done").Do(background, nothing)
	require.NoError(t, err)
	require.True(t, ran)
	claim, err := before.Claim("seat").TryTake(background, "cart", time.Hour)
	require.NoError(t, err)
	held, err := before.Mutex("held").Lock(background)
	require.NoError(t, err)
	ctx, resign := context.WithCancel(background)
	terms, led := make(chan int64, 1), make(chan error, 1)
	go func() {
		led <- before.Election("failover", "before").Lead(ctx, func(ctx context.Context, term int64) error {
			terms <- term
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	term := testbed.Receive(t, terms)

	require.NoError(t, move(background, former.Server, later.Server))
	_ = former.Kill() // pg_upgrade has ended it already
	testbed.Receive(t, held.Context().Done())
	require.ErrorIs(t, held.Unlock(background), txlock.ErrLost)
	resign()
	require.Error(t, testbed.Receive(t, led))

	after := locker(later)
	_, err = after.Election("failover", "onlooker").Leader(background)
	require.ErrorIs(t, err, txlock.ErrNoLeader)
	require.Greater(t, drawn(t, after.Mutex("held")), max(held.Token(), term, claim.Token()))
	require.Greater(t, leadOnce(t, after), term)
	ran, err = after.Once("done").Do(background, nothing)
	require.NoError(t, err)
	require.False(t, ran, "its marker is there")
	state, err := after.Claim("seat").State(background)
	require.NoError(t, err)
	require.Equal(t, "cart", state.By)
	require.Equal(t, claim.Token(), state.Token)
	require.WithinDuration(t, claim.Until(), state.Until, 0)
	claimed, err := after.Claimed(claim.String())
	require.NoError(t, err)
	require.NoError(t, claimed.Do(background, nothing), "its text is good on the new server")
	require.NoError(t, after.Install(background), "nothing is missing")
}
