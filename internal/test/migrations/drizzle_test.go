//go:build unix

package migrations_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/tier"
)

// drizzle is drizzle-kit. It takes no lock, and runs all that is pending in one transaction.
func drizzle(kit servers.Tool) tool {
	kit.Line = append(kit.Line, "migrate")
	var entries []string
	for i := range 4 {
		entries = append(entries, fmt.Sprintf(
			`{"idx": %d, "version": "7", "when": %d, "tag": "%04d_step", "breakpoints": true}`, i, i+1, i+1))
	}
	return tool{
		name:    "drizzle-kit",
		program: kit,
		file: func(version int, text string) (string, string) {
			return fmt.Sprintf("%04d_step.sql", version), text
		},
		besides: map[string]string{
			"drizzle.config.ts": "const url: string = process.env.TXLOCK_DSN!;\n" +
				"export default { dialect: 'postgresql', out: '.', dbCredentials: { url } };\n",
			"meta/_journal.json": `{"version": "7", "dialect": "postgresql", "entries": [` +
				strings.Join(entries, ", ") + `]}`,
		},
		version: "SELECT COUNT(*) FROM drizzle.__drizzle_migrations",
	}
}

// drizzleKit is no tool but in the full tier: it needs npm, and its download takes half a minute.
func drizzleKit(t *testing.T) []tool {
	if !tier.Full() {
		return nil
	}
	kit, err := servers.DrizzleKit(t.Context())
	require.NoError(t, err)
	t.Log(kit.Origin)
	return []tool{drizzle(kit)}
}

// As TestReplicas, with a tool of Node's.
func TestDrizzleKit(t *testing.T) {
	each(t, drizzleKit(t), func(t *testing.T, s *shop, c tool) { s.threeReplicas(t, c, plain) })
}

// What TestConcurrently shows of the others, drizzle-kit cannot do: PostgreSQL refuses such an
// index in a transaction. It fails without a word why, txlock run with it, and nothing is done.
func TestDrizzleKitConcurrently(t *testing.T) {
	each(t, drizzleKit(t), func(t *testing.T, s *shop, c tool) {
		s.open()
		replica := s.start(t, c, concurrently, txlockRun()...)
		require.Equal(t, 1, replica.wait(t), replica.output)
		require.NotContains(t, replica.output.String(), "transaction block")
		require.Equal(t, "0", s.ask(t, c.version))
		require.Empty(t, s.ask(t, "SELECT to_regclass('orders')"))
	})
}
