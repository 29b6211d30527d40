package inspection

import (
	"database/sql"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// What InnoDB's views say of locks is not always what it seems.
func TestInspectInnoDB(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		says string
		run  func(*testing.T, *testbed.Engine)
	}{
		{"who inserted a row holds it, not who found that", implicitHolder},
		{"who split a page holds nothing there", splitPage},
		{"a value is one of its own column", rowsOfOneIndex},
		{"a table without a database is of the session's", unqualifiedRows},
		{"shared locks", func(t *testing.T, e *testbed.Engine) {
			// one after the other: MariaDB does not tell two sessions apart that have shared locks
			// alone
			t.Run("one that waits to be more is not held", func(t *testing.T) { sharedWaiter(t, e) })
			t.Run("two are of sessions that are known, or of nobody", func(t *testing.T) { sharedHolders(t, e) })
		}},
		{"text is read to its end", quotedRows},
		{"keys of several statements show in a caller's transaction", severalStatements},
		{"the end of the index is no slot", endOfIndex},
		{"another's probe is no waiter", strangersProbe},
		{"a holder that is ended writes nothing to stderr", silentWhenBroken},
		{"Break returns when all that the session did is undone", breakOfStranger},
		{"a session's time zone changes no time", timeZones},
	} {
		t.Run(test.says, func(t *testing.T) {
			t.Parallel()
			for _, e := range testbed.AllMySQL() {
				t.Run(e.Name, func(t *testing.T) { test.run(t, e) })
			}
		})
	}
}

func innodbFixture(t *testing.T, e *testbed.Engine) *testbed.Fixture[*sql.Tx] {
	return testbed.NewSizedFixture(t, e, testbed.MySQLSQL[0], testbed.PoolSize, "")
}

// slotTable is a Locker with a lock table and a pool of its own.
func slotTable(t *testing.T, f *testbed.Fixture[*sql.Tx], slots int) (
	locks *txlock.Locker[*sql.Tx], db *sql.DB, name string,
) {
	t.Helper()
	db = database.Open(t, "mysql", f.DSNFor(f.Label, "", nil))
	name = f.Label + ".own_slots"
	locks = txlock.New(mysql.New(db), txlock.WithTable(name), txlock.WithSlots(slots))
	require.NoError(t, locks.Install(background))
	return locks, db, name
}

// outsider runs a statement in a transaction of a client that does not use txlock.
func outsider(t *testing.T, f *testbed.Fixture[*sql.Tx], statement string) (tx *sql.Tx, session string) {
	t.Helper()
	tx = f.Guest(t)
	t.Cleanup(func() { _ = tx.Rollback() }) // of a test that failed
	require.NoError(t, f.Exec(background, tx, statement))
	session = f.Read(t, tx, f.SessionSQL())
	return tx, session
}

// rowsOf are the holdings of a table, by column and value.
func rowsOf(holdings []txlock.Holding, table string) map[string]txlock.Holding {
	rows := map[string]txlock.Holding{}
	for _, h := range holdings {
		if h.Table == table {
			rows[h.Column+" "+h.Row] = h
		}
	}
	return rows
}

func implicitHolder(t *testing.T, e *testbed.Engine) {
	f := innodbFixture(t, e)
	table := f.MakeTable(t, "id int primary key")
	tx, session := outsider(t, f, "INSERT INTO "+table+" VALUES (50)")
	locked := testbed.LockLater(f.Locks.Rows(table, "id", 50))
	f.Waiters(t, 1)
	h := rowsOf(f.LookAtRows(t), table)["id 50"]
	require.NotNil(t, h.Holder)
	require.Equal(t, session, h.Holder.ID)
	require.Len(t, h.Waiters, 1)
	f.Apart(func() { require.NoError(t, f.Locks.Break(background, h)) })
	require.Error(t, f.Exec(background, tx, "SELECT 1"))
	require.ErrorContains(t, <-locked, "50") // its row was undone
}

func splitPage(t *testing.T, e *testbed.Engine) {
	if e.Kind != servers.MySQL {
		return // MariaDB shows the owner's number with the lock
	}
	f := innodbFixture(t, e)
	table := f.MakeTable(t, "id int primary key, filler varchar(3000) character set latin1")
	for _, id := range []int{10, 20, 30, 40} {
		f.AsAdmin(t, fmt.Sprintf("INSERT INTO %s VALUES (%d, REPEAT('x', 3000))", table, id))
	}
	owner := testbed.Lock(t, f.Locks.Rows(table, "id", 30, 40))
	before := rowsOf(f.LookAtRows(t), table)["id 40"].Holder.ID
	tx, session := outsider(t, f, fmt.Sprintf("INSERT INTO %s VALUES (15, REPEAT('x', 3000)), (16, REPEAT('x', "+
		"3000)), (17, REPEAT('x', 3000)), (18, REPEAT('x', 3000))", table))
	require.NotEqual(t, session, before)
	require.NotZero(t, f.Total(t, `SELECT COUNT(*) FROM performance_schema.data_locks l
		JOIN performance_schema.threads t USING (THREAD_ID)
		WHERE l.OBJECT_SCHEMA = '`+f.Label+`' AND l.LOCK_DATA IN ('30', '40')
		AND t.PROCESSLIST_ID = `+session), "it split the page")
	rows := rowsOf(f.LookAtRows(t), table)
	for _, name := range []string{"id 30", "id 40"} {
		require.NotNil(t, rows[name].Holder, name)
		require.Equal(t, before, rows[name].Holder.ID, name)
	}
	require.NoError(t, f.End(background, tx, false))
	testbed.Unlock(t, owner)
}

func rowsOfOneIndex(t *testing.T, e *testbed.Engine) {
	f := innodbFixture(t, e)
	table := f.MakeTable(t, "id int primary key, sku int unique, n int", "(5, 1, 0), (1, 2, 0)")
	bySku := testbed.Lock(t, f.Locks.Rows(table, "`sku`", 1))
	tx, session := outsider(t, f, "UPDATE "+table+" SET n = 1 WHERE id = 1")
	skuLater := testbed.LockLater(f.Locks.Rows(table, "`sku`", 1))
	f.Waiters(t, 1)
	rows := rowsOf(f.LookAtRows(t), table)
	require.Len(t, rows, 1)
	require.NotEqual(t, session, rows["`sku` 1"].Holder.ID)
	idLater := testbed.LockLater(f.Locks.Rows(table, "ID", 1))
	f.Waiters(t, 2)
	rows = rowsOf(f.LookAtRows(t), table)
	require.Len(t, rows, 2)
	require.NotEqual(t, session, rows["`sku` 1"].Holder.ID)
	require.Len(t, rows["`sku` 1"].Waiters, 1)
	require.Equal(t, session, rows["ID 1"].Holder.ID)
	require.Len(t, rows["ID 1"].Waiters, 1)
	require.NoError(t, f.End(background, tx, false))
	testbed.Unlock(t, bySku)
	require.NoError(t, <-skuLater)
	require.NoError(t, <-idLater)
}

func unqualifiedRows(t *testing.T, e *testbed.Engine) {
	f, other := innodbFixture(t, e), innodbFixture(t, e)
	f.AsAdmin(t, "INSERT INTO "+f.MakeTable(t, "id int primary key")+" VALUES (1)")
	f.AsAdmin(t, "INSERT INTO "+other.MakeTable(t, "id int primary key")+" VALUES (1)")
	owner := testbed.Lock(t, f.Locks.Rows("things", "id", 1))
	later := testbed.LockLater(f.Locks.Rows("things", "id", 1))
	f.Waiters(t, 1)
	var shown []txlock.Holding // to somebody in another database
	for _, h := range other.LookAtRows(t) {
		if h.Table == "things" && h.Holder != nil && h.Holder.Database == f.Label {
			shown = append(shown, h)
		}
	}
	require.Len(t, shown, 1)
	require.Len(t, shown[0].Waiters, 1)
	testbed.Unlock(t, owner)
	require.NoError(t, <-later)
}

// lookAtReader is what Inspect shows of row 1, which one session shares, once it names that. The
// Check of a fixture beside shares a row of its own for a moment. MariaDB does not tell the two
// sessions apart then.
func lookAtReader(t *testing.T, f *testbed.Fixture[*sql.Tx], table string) (h txlock.Holding) {
	t.Helper()
	eventually.True(t, "the reader is named", func() bool {
		h = rowsOf(f.LookAtRows(t), table)["id 1"]
		require.Nil(t, h.Holder)
		require.Len(t, h.Readers, 1)
		return h.Readers[0].ID != ""
	})
	return h
}

func sharedWaiter(t *testing.T, e *testbed.Engine) {
	f := innodbFixture(t, e)
	table := f.MakeTable(t, "id int primary key", "(1)")
	tx, waiting := outsider(t, f, "SELECT * FROM "+table+" WHERE id = 1 LOCK IN SHARE MODE")
	other, holding := outsider(t, f, "SELECT * FROM "+table+" WHERE id = 1 LOCK IN SHARE MODE")
	ended := testbed.Go(func() error { return f.Locks.Rows(table, "id", 1).LockTx(background, tx) })
	f.Waiters(t, 1)
	h := lookAtReader(t, f, table)
	require.Equal(t, holding, h.Readers[0].ID)
	require.Len(t, h.Waiters, 1)
	require.Equal(t, waiting, h.Waiters[0].ID)
	require.NoError(t, f.End(background, other, false))
	require.NoError(t, <-ended)
	require.NoError(t, f.End(background, tx, false))
}

// Two sessions have locked a row each, in share mode. A wrong holder would be ended by a Break.
func sharedHolders(t *testing.T, e *testbed.Engine) {
	f := innodbFixture(t, e)
	table := f.MakeTable(t, "id int primary key", "(1), (2)")
	var txs []*sql.Tx
	var waits []<-chan error
	session := map[string]string{}
	for _, id := range []string{"1", "2"} {
		tx, holder := outsider(t, f, "SELECT * FROM "+table+" WHERE id = "+id+" LOCK IN SHARE MODE")
		txs, session["id "+id] = append(txs, tx), holder
		waits = append(waits, testbed.LockLater(f.Locks.Rows(table, "id", id)))
	}
	f.Waiters(t, 2)
	rows := rowsOf(f.LookAtRows(t), table)
	require.Len(t, rows, 2)
	for row, h := range rows {
		require.Nil(t, h.Holder)
		require.Len(t, h.Readers, 1)
		require.Len(t, h.Waiters, 1)
		if e.MariaDB {
			require.Empty(t, h.Readers[0].ID, "which of the two is not known")
			require.ErrorContains(t, f.Locks.Break(background, h), "did not say by which session")
		} else {
			require.Equal(t, session[row], h.Readers[0].ID)
		}
	}
	for i, tx := range txs {
		require.NoError(t, f.End(background, tx, false))
		require.NoError(t, <-waits[i])
	}
}

func quotedRows(t *testing.T, e *testbed.Engine) {
	f := innodbFixture(t, e)
	table := f.MakeTable(t, "name varchar(40), n varchar(40), primary key (name, n)")
	names := []string{"it's", "a', 'b", "'", "plain", `a\b`, `\0`}
	for _, name := range names {
		database.Exec(t, f.Admin, "INSERT INTO "+table+" VALUES (?, ?)", name, "c', 'd")
	}
	var later []<-chan error
	owner := testbed.Lock(t, f.Locks.Rows(table, "name", "it's", "a', 'b", "'", "plain", `a\b`, `\0`))
	for i, name := range names {
		later = append(later, testbed.LockLater(f.Locks.Rows(table, "name", name)))
		f.Waiters(t, i+1)
	}
	rows := rowsOf(f.LookAtRows(t), table)
	for _, name := range names {
		require.Contains(t, rows, "name "+name)
		require.NotNil(t, rows["name "+name].Holder)
		require.Len(t, rows["name "+name].Waiters, 1)
	}
	testbed.Unlock(t, owner)
	for _, ended := range later {
		require.NoError(t, <-ended)
	}
}

func severalStatements(t *testing.T, e *testbed.Engine) {
	if !e.ListsHeld() {
		return
	}
	f := innodbFixture(t, e)
	first, second := f.Key("first"), f.Key("second")
	f.Free(t, first, second) // reads the number of slots: LockTx would wait a second for that at most
	tx := f.Guest(t)
	require.NoError(t, f.Locks.Mutex(first).LockTx(background, tx))
	require.NoError(t, f.Locks.Mutex(second).LockTx(background, tx))
	holder := testbed.Lock(t, f.Locks.Mutex(f.Key("third")))
	third := make(chan error, 1) // its wait must not hide what it holds
	go func() { third <- f.Locks.Mutex(f.Key("third")).LockTx(background, tx) }()
	f.Waiters(t, 1)
	shown := map[string]bool{}
	for _, h := range f.Look(t, first, second) {
		shown[h.Key] = true
	}
	testbed.Unlock(t, holder)
	require.NoError(t, <-third)
	require.NoError(t, f.End(background, tx, false))
	require.Equal(t, map[string]bool{first: true, second: true}, shown)
}

func endOfIndex(t *testing.T, e *testbed.Engine) {
	f := innodbFixture(t, e)
	f.LookAtRows(t) // makes the table
	tx, session := outsider(t, f, "SELECT * FROM "+f.Label+".few_slots FORCE INDEX (PRIMARY) WHERE slot > 2 FOR UPDATE")
	few, _ := f.FewSlots(t)
	rows := rowsOf(inspected(t, f, few, inSlot(3, 4)), f.Label+".few_slots")
	require.Len(t, rows, 1)
	require.NotNil(t, rows[" 3"].Holder)
	require.Equal(t, session, rows[" 3"].Holder.ID)
	require.NoError(t, f.End(background, tx, false))
}
