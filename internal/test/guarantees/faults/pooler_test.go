package faults

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/tier"
	"github.com/txlock/txlock/internal/test/wire/pooler"
)

// A client that is killed inside a Do leaves the server's session to the next client of the pooler
// as it was: one that has no settings of its own can write.
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
			shared, err := pooler.Listen(e.DSN, 1)
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, shared.Close()) })
			next, err := pgx.Connect(background, e.DSNFor(f.Label, shared.Addr(), nil))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, next.Close(background)) })
			for range tier.Pick(1, 2, 100) {
				client := e.StartPartner(t, testbed.Part{
					Plays: "work", DSN: e.DSNFor(f.Label, shared.Addr(), nil), Key: f.Key("a"), Lease: time.Minute,
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
