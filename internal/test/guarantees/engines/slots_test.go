package engines

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// Golden numbers: a changed hash would let two versions of a program, in a rolling deployment, hold
// one key at once.
func TestSlotOfKeyNeverChanges(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			if e.Postgres {
				slotsNeverChange(t, e, testbed.PostgresPgx[0])
			} else {
				slotsNeverChange(t, e, testbed.MySQLSQL[0])
			}
		})
	}
}

func slotsNeverChange[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	golden := map[string]map[int]int{
		"sku:42": {65536: 2575, 1024: 527, 100: 15, 1: 0},
		"a":      {65536: 48707, 1024: 579, 100: 7, 1: 0},
		// the check value of CRC-32/ISO-HDLC
		"123456789":  {65536: 0xCBF43926 % 65536, 1024: 0xCBF43926 % 1024, 100: 0xCBF43926 % 100, 1: 0},
		"日本語":        {65536: 21221, 1024: 741, 100: 5, 1: 0},
		"nul\x00nul": {65536: 43026, 1024: 18, 100: 42, 1: 0},
	}
	for _, slots := range []int{65536, 1024, 100, 1} {
		f, name := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(slots))
		require.NoError(t, f.Locks.Install(background))
		for key, slotOf := range golden {
			by := heldSlot(t, f, name, slotOf[slots])
			f.Taken(t, key)
			require.NoError(t, f.End(background, by, false))
			if slots > 1 {
				by = heldSlot(t, f, name, (slotOf[slots]+1)%slots)
				f.Free(t, key)
				require.NoError(t, f.End(background, by, false))
			}
		}
	}
}

// heldSlot begins a transaction that holds a slot.
func heldSlot[Tx any](t *testing.T, f *testbed.Fixture[Tx], table string, slot int) Tx {
	t.Helper()
	tx := f.Guest(t)
	held, err := f.Query(background, tx, fmt.Sprintf("SELECT slot FROM %s WHERE slot = %d FOR UPDATE", table, slot))
	require.NoError(t, err)
	require.Equal(t, strconv.Itoa(slot), held)
	return tx
}

func TestSlotsAreSortedAndFolded(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			if e.Postgres {
				slotsSortedAndFolded(t, e, testbed.PostgresPgx[0])
			} else {
				slotsSortedAndFolded(t, e, testbed.MySQLSQL[0])
			}
		})
	}
}

// Who locks all slots, and waits for one of them, holds those before it and none after it. Of 250
// keys in 16 slots each slot is named once.
func slotsSortedAndFolded[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	const slots = 16
	f, name := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(slots))
	require.NoError(t, f.Locks.Install(background))
	free := func(result string) int {
		return f.Total(t, "SELECT "+result+" FROM (SELECT slot FROM "+name+" FOR UPDATE SKIP LOCKED) free")
	}
	require.Equal(t, slots, free("COUNT(*)"))
	keys := make([]string, 300)
	for i := range keys {
		keys[i] = strconv.Itoa(i % 250)
	}
	for _, held := range []int{0, 7, slots - 1} {
		by := heldSlot(t, f, name, held)
		granted := make(chan *txlock.Lock, 1)
		go func() {
			lock, err := f.Locks.Mutex(keys...).Lock(background)
			if err == nil {
				granted <- lock
			}
		}()
		f.Waiters(t, 1)
		require.Equal(t, slots-1-held, free("COUNT(*)"))
		require.Equal(t, held+1, free(fmt.Sprintf("COALESCE(MIN(slot), %d)", slots)))
		if !e.Postgres { // which shows no arguments of a statement
			statement := "SELECT COUNT(*) FROM information_schema.processlist WHERE DB = '" + f.Label +
				"' AND INFO LIKE '%FOR UPDATE' AND INFO LIKE '% IN (0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15) AND %'"
			// MariaDB leaves a statement out while its session is busy with its own state.
			eventually.True(t, "the statement that waits", func() bool { return f.Total(t, statement) == 1 })
		}
		require.NoError(t, f.End(background, by, false))
		lock := testbed.Receive(t, granted)
		require.Zero(t, free("COUNT(*)"))
		require.NoError(t, lock.Unlock(background))
	}
}
