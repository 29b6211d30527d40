package faults

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

func TestAmongCrowds(t *testing.T) {
	t.Parallel()
	eachOpened(t, amongCrowds[pgx.Tx], amongCrowds[*sql.Tx])
}

// A process with one caller is served as soon as four with a hundred each: it waits for the two
// sessions that each of them may have in the queue, not for four hundred callers.
func amongCrowds[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const processes, queue, rounds = 4, 2, 20
	f := testbed.NewFixture(t, e, c)
	table := f.MakeTable(t, "n int primary key")
	f.AsAdmin(t, "INSERT INTO "+table+" VALUES (0)")
	for range processes {
		partner := f.StartPartner(t, testbed.Part{
			Plays: "crowd", DSN: f.DSNFor(f.Label, "", nil), Key: f.Key("crowd"), Lease: time.Minute,
			Statement: "UPDATE " + table + " SET n = n + 1",
		})
		require.Equal(t, "busy", partner.Next(t))
	}
	m := f.Locks.Mutex(f.Key("crowd"))
	count := "SELECT n FROM " + table
	fewest := 1 << 30
	for range rounds {
		asked, served := f.Total(t, count), 0
		require.NoError(t, m.Do(background, func(ctx context.Context, tx Tx) error {
			served = f.Total(t, count) // what is committed: nobody else is inside
			return nil
		}))
		fewest = min(fewest, served-asked)
	}
	t.Logf("at best %d works before it", fewest)
	// Those that are served while its statement is on its way to the queue come on top.
	require.LessOrEqual(t, fewest, 2*processes*queue)
}
