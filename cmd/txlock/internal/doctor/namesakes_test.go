package doctor_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
)

// A table of the lock table's name in another schema is named: whoever finds it first locks there.
func TestNamesakes(t *testing.T) {
	onEvery(t, isPostgres, func(t *testing.T, e *engine) {
		s := newSite(t, e)
		s.execute(t, "CREATE SCHEMA tenant", `CREATE TABLE tenant.txlock_slots (slot int)`)
		found := find(t, s.examine(t), "table-namesakes")
		require.Equal(t, doctor.Note, found.Severity)
		require.Contains(t, found.Found, "tenant.txlock_slots")
	})
}
