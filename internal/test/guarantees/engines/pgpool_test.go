package engines

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock/internal/test/guarantees"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// Some of the guarantees hold behind pgpool-II too. The full tier shows them all there, with two
// clients.
func TestPgpool(t *testing.T) {
	t.Parallel()
	e := testbed.Pgpool(t, 100, true)
	for says, show := range map[string]func(*testing.T, *testbed.Engine, testbed.Client[pgx.Tx]){
		"one holder": guarantees.OneHolder[pgx.Tx], "a cancelled wait": guarantees.CancelledWait[pgx.Tx],
		"settings": guarantees.CallersSettings[pgx.Tx], "work that commits": guarantees.SelfEnded[pgx.Tx],
		"killed connections": guarantees.KilledConnection[pgx.Tx], "permits": guarantees.SemaphoreVerbs[pgx.Tx],
	} {
		t.Run(says, func(t *testing.T) { show(t, e, testbed.PgxOpened()) })
	}
}
