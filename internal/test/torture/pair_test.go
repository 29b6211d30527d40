package main

import (
	"bytes"
	"context"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// switched runs on a pair that changes places a few times.
func switched(t *testing.T, s settings) *result {
	t.Helper()
	s.Seed, s.Processes, s.Goroutines, s.Keys, s.Lock, s.Histories = rand.Int64(), 3, 4, 16, lockTxlock,
		histories(t)
	var out bytes.Buffer
	result, err := torture(context.Background(), s, &out)
	result.print(&out)
	t.Log(out.String())
	require.NoError(t, err)
	require.Equal(t, s.Switches, result.switches())
	return result
}

// This takes half a minute on each engine. TestFailover has the quick form.
func TestPairsChangePlaces(t *testing.T) {
	for _, kind := range tier.Pick(nil, nil, servers.Kinds()) {
		t.Run(kind.String(), func(t *testing.T) {
			result := switched(t, settings{Kind: kind, Pair: pairHAProxy, Switches: 6})
			require.Empty(t, result.Violations)
		})
		if kind == servers.MySQL {
			t.Run("group", func(t *testing.T) {
				result := switched(t, settings{Kind: kind, Pair: pairGroup, Switches: 8})
				require.Empty(t, result.Violations)
			})
		}
		if kind == servers.MariaDB {
			t.Run("Galera", func(t *testing.T) {
				result := switched(t, settings{Kind: kind, Pair: pairGalera, Switches: 8})
				require.Empty(t, result.Violations)
			})
		}
		if kind == servers.Postgres() {
			for _, way := range []string{pairPatroni, pairPatroniHosts} {
				t.Run(way, func(t *testing.T) {
					result := switched(t, settings{Kind: kind, Pair: way, Switches: 8})
					require.Empty(t, result.Violations)
				})
			}
		}
		if isPostgres(kind) {
			t.Run(kind.String()+" by hosts", func(t *testing.T) {
				result := switched(t, settings{Kind: kind, Pair: pairHosts, Switches: 6})
				require.Empty(t, result.Violations)
			})
		}
	}
}

// Otherwise the test above would prove nothing.
func TestAsynchronousPairLosesWork(t *testing.T) {
	if !tier.Full() { // nor does that one run
		return
	}
	for runs := 0; ; runs++ {
		require.Less(t, runs, 5, "nothing acknowledged was lost")
		result := switched(t, settings{Kind: servers.Postgres(), Pair: pairHosts, Switches: 6, Asynchronous: true})
		for _, v := range result.Violations {
			if v.Rule == ruleSet {
				return
			}
		}
	}
}
