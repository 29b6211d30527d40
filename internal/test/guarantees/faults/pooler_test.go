package faults

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// A client that is killed inside a Do leaves the server's session to the next client of the pooler
// as it was: one that has no settings of its own can write. Odyssey sends ROLLBACK, as PgCat and
// PgDog do, and the session goes on to the next client. (PgBouncer closes such a session.)
func TestKilledBehindPooler(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		if !e.Postgres {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			f := testbed.NewFixture(t, e, testbed.PgxOpened())
			table := f.MakeTable(t, "id int")
			pooler, err := servers.StartOdyssey(background, e.Server, "pool_size 1",
				"pool_reserve_prepared_statement yes")
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, pooler.Stop()) })
			shared := e.Through(pooler).Address()
			next, err := pgx.Connect(background, e.DSNFor(f.Label, shared, nil))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, next.Close(background)) })
			for range tier.Pick(1, 2, 100) {
				client := e.StartPartner(t, testbed.Part{
					Plays: "work", DSN: e.DSNFor(f.Label, shared, nil), Key: f.Key("a"), Lease: time.Minute,
					Statement: "INSERT INTO " + table + " VALUES (1)",
				})
				require.Equal(t, "working", client.Next(t))
				require.NoError(t, client.Process.Kill())
				require.Error(t, client.Exit())
				_, err := next.Exec(background, "INSERT INTO "+table+" VALUES (2)")
				require.NoError(t, err)
				f.Free(t, f.Key("a"))
			}
			require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table+" WHERE id = 1"))
		})
	}
}
