package guarantees

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/must"
)

// stock is a table of numbered things, of which some are left, and the statements for it.
type stock[Tx any] struct {
	*testbed.Fixture[Tx]
	table string
	key   string
}

func newStock[Tx any](t *testing.T, f *testbed.Fixture[Tx]) stock[Tx] {
	s := stock[Tx]{f, f.MakeTable(t, "id int primary key, n int, note varchar(100)"), f.Key("stock")}
	f.AsAdmin(t, "INSERT INTO "+s.table+" VALUES (1, 10, 'one'), (2, 10, 'two')")
	return s
}

// statement is one with @ for its arguments, and stock for its table.
func (s stock[Tx]) statement(query string, args ...any) txlock.Statement {
	query = strings.ReplaceAll(query, "stock", s.table)
	for i := 1; strings.Contains(query, "@"); i++ {
		placeholder := "?"
		if s.Postgres {
			placeholder = "$" + strconv.Itoa(i)
		}
		query = strings.Replace(query, "@", placeholder, 1)
	}
	return txlock.Statement{SQL: query, Args: args}
}

func (s stock[Tx]) take(rows int) txlock.Statement {
	take := s.statement("UPDATE stock SET n = n - 1 WHERE id = @ AND n > 0", 1)
	take.Rows = rows
	return take
}

func (s stock[Tx]) insert(id int) txlock.Statement {
	return s.statement("INSERT INTO stock VALUES (@, @, @)", id, nil, "it's new? 'quoted'")
}

func (s stock[Tx]) left(t *testing.T) int {
	return s.Total(t, "SELECT n FROM "+s.table+" WHERE id = 1")
}

func (s stock[Tx]) count(t *testing.T) int { return s.Total(t, "SELECT COUNT(*) FROM "+s.table) }

// unchanged shows that nothing was committed, and nothing is held.
func (s stock[Tx]) unchanged(t *testing.T) {
	t.Helper()
	s.Transactions(t, 0) // an argument that cannot be sent may cost the connection
	s.Free(t, s.key)
	require.Equal(t, 10, s.left(t))
	require.Equal(t, 2, s.count(t))
	s.Unused(t)
}

// ExecCommits shows that Exec commits its statements together, and tells what each has affected.
func ExecCommits[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newStock(t, testbed.NewFixture(t, e, c))
	m := s.Locks.Mutex(s.key)
	for i, m := range []*txlock.Mutex[Tx]{
		m, m, m.Within(time.Minute), m.Shared(), s.Locks.Mutex(s.key, s.Key("second")), s.Locks.Rows(s.table, "id", 1),
		s.Locks.Rows(s.table, "id", 2, 1),
	} {
		affected, err := m.Exec(background, s.take(1), s.insert(3), s.statement("SELECT n FROM stock"),
			s.statement("UPDATE stock SET n = n WHERE id = @;", 77), s.statement("DELETE FROM stock WHERE id = @", 3))
		require.NoError(t, err, "%d", i)
		require.Equal(t, []int64{1, 1, 3, 0, 1}, affected, "%d", i)
		require.Equal(t, 9-i, s.left(t))
	}
	require.Equal(t, 2, s.count(t))
	for _, id := range []string{"5", "6"} {
		s.AsAdmin(t, "INSERT INTO "+s.table+" VALUES ("+id+", 0, 'same')")
	}
	same := s.statement("DELETE FROM stock WHERE note = @", "same")
	same.Rows = 2
	if !e.IsCluster() { // where rows are refused
		_, err := s.Locks.Rows(s.table, "note", "same").Exec(background, same)
		require.NoError(t, err, "rows by a column that is not unique")
	}
	require.Equal(t, []int64{1}, must.Get(m.TryExec(background, s.insert(4)))(t))
	note := ""
	require.NoError(t, s.Admin.QueryRow("SELECT note FROM "+s.table+" WHERE id = 4 AND n IS NULL").Scan(&note))
	require.Equal(t, "it's new? 'quoted'", note)
	s.Free(t, s.key)
	s.Unused(t)
}

// ExecSells shows that Rows sells what is there and no more, however many want it.
func ExecSells[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newStock(t, testbed.NewFixture(t, e, c))
	var callers errgroup.Group
	sold := make(chan int, 30)
	for i := range 30 {
		callers.Go(func() error {
			_, err := s.Locks.Mutex(s.key).Exec(background, s.insert(100+i), s.take(1))
			if errors.Is(err, txlock.ErrRows) {
				return nil
			}
			sold <- i
			return err
		})
	}
	require.NoError(t, callers.Wait())
	require.Len(t, sold, 10)
	require.Zero(t, s.left(t))
	require.Equal(t, 12, s.count(t))
}

// ExecStrange shows that statements which the server cannot count by itself do the same.
func ExecStrange[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newStock(t, testbed.NewFixture(t, e, c))
	for i, statement := range []txlock.Statement{
		s.statement("  update stock set note = concat(note, 'returning ?') where id = 1 -- one"),
		s.statement("/* a comment */ UPDATE stock SET note = CONCAT(note, 'x') WHERE id = @", 1),
		s.statement("-- name: It's? :exec\n  -- $1 ; x\nUPDATE stock SET note = CONCAT(note, 'x') WHERE id = @", 1),
		s.statement("UPDATE stock SET note = CONCAT(note, 'it''s \"?\"') WHERE id = @ /* it's one */", 1),
		s.statement("WITH one AS (SELECT id FROM stock WHERE id = @) SELECT * FROM one", 1),
		s.statement("SELECT id FROM stock WHERE id = @ FOR UPDATE", 1),
		s.statement("INSERT INTO stock SELECT MAX(id) + 1, 0, '' FROM stock WHERE id > @", 0),
		s.statement("DELETE FROM stock WHERE id > @", 2),
	} {
		statement.Rows = 1
		affected, err := s.Locks.Mutex(s.key).Exec(background, s.statement("UPDATE stock SET n = 0 WHERE 1 = 0"),
			statement)
		require.NoError(t, err, statement.SQL)
		require.Equal(t, []int64{0, 1}, affected, "%d: %s", i, statement.SQL)
		statement.Rows = 2
		_, err = s.Locks.Mutex(s.key).Exec(background, statement, s.take(0))
		require.ErrorIs(t, err, txlock.ErrRows, statement.SQL)
		require.ErrorContains(t, err, "statement 1", statement.SQL)
	}
	s.unchanged(t)
}

// ExecFails shows that nothing is committed when a statement fails, or affects another number of
// rows, and that the error says which.
func ExecFails[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newStock(t, testbed.NewFixture(t, e, c))
	m := s.Locks.Mutex(s.key)
	_, ofSQL := any(c).(testbed.Client[*sql.Tx])
	none := s.statement("SELECT note FROM stock WHERE id = @", 77)
	var note, more string
	none.Into = []any{&note}
	two := none
	two.Args, two.Into = []any{1}, []any{&note, &more}
	word := s.statement("SELECT note FROM stock WHERE id = @", 1)
	var number int
	word.Into = []any{&number}
	twice := s.take(1)
	twice.SQL = strings.Replace(twice.SQL, " AND ", " AND n > 100 AND ", 1)
	for _, failing := range []struct {
		txlock.Statement
		says string
		rows bool
	}{
		{twice, "has affected 0, and must affect 1", true},
		{s.take(2), "has affected 1, and must affect 2", true},
		{none, "none", true},
		{two, "destination", false},
		{word, "number", false},
		{s.insert(1), "", false},
		{s.statement("UPDAT stock SET n = 1"), "UPDAT", false},
		{s.statement("INSERT INTO nowhere VALUES (1)"), "nowhere", false},
		{s.statement("UPDATE stock SET n = 1 / @", "x"), "", false},
		{s.statement("UPDATE stock SET n = 1 WHERE id = @ OR id = @", 1), "", false},
		{s.statement("UPDATE stock SET n = 1", 1, 2), "", false},
		{s.statement("UPDATE stock SET n = @", make(chan int)), "", false},
		{s.statement("SELECT 1; DELETE FROM stock"), "", false},
	} {
		if (strings.Contains(failing.SQL, "1 / ") || strings.Contains(failing.SQL, ";")) && !s.Postgres {
			continue // there it is NULL, and two statements
		}
		if strings.Contains(failing.SQL, ";") && (ofSQL || strings.Contains(c.Name, "simple protocol")) {
			continue // which take two
		}
		var counts []int64
		var err error
		counts, err = m.Exec(background, s.insert(3), failing.Statement, s.insert(4))
		require.Error(t, err, failing.SQL)
		require.Nil(t, counts)
		require.ErrorContains(t, err, "Exec "+strconv.Quote(s.key), failing.SQL)
		require.ErrorContains(t, err, "statement 2: ", failing.SQL)
		require.NotContains(t, err.Error(), "txlock_work", failing.SQL)
		require.Equal(t, failing.rows, errors.Is(err, txlock.ErrRows), "%s: %v", failing.SQL, err)
		require.NotErrorIs(t, err, txlock.ErrNotAcquired, failing.SQL)
		require.NotErrorIs(t, err, txlock.ErrLost, failing.SQL)
		s.unchanged(t)
	}
	for says, bad := range map[string][]txlock.Statement{
		"no statement":            nil,
		"statement 2: empty SQL":  {s.take(0), {SQL: " "}},
		"statement 1: Rows is -1": {s.take(-1)},
	} {
		require.ErrorContains(t, testbed.ErrorOf(m.Exec(background, bad...)), says)
		s.unchanged(t)
	}
	require.ErrorIs(t, testbed.ErrorOf(s.Locks.Rows(s.table, "id", 77).Exec(background, s.take(1))), txlock.ErrNoRow)
	s.unchanged(t)
}

// ExecArguments shows that an argument means the same alone and in the work of a Do, where the
// client library sends it as it does for its users.
func ExecArguments[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newStock(t, testbed.NewFixture(t, e, c))
	m := s.Locks.Mutex(s.key)
	at := time.Date(2026, 11, 24, 3, 4, 5, 678901000, time.UTC)
	uses := []txlock.Statement{
		s.statement("note = @", "it's"), s.statement("note = @", `a\'b`), s.statement("note = @", []byte(`{"a": 1}`)),
		s.statement("note = @", []byte("é")), s.statement("note = @", []byte(nil)), s.statement("note = @", "\x00"),
		s.statement("note = @", true), s.statement("note = @", 0.1), s.statement("note = @", at),
		s.statement("note = @", []byte("\xff")), s.statement("n = @", -7), s.statement("n = n - @", -7),
		s.statement("n = @", uint64(1)<<63), s.statement("n = n-@", -7), s.statement("n = 5 * @", 0.5),
	}
	if s.Postgres {
		uses = append(uses, s.statement("note = @::text || @::text", "a", "b"),
			s.statement("note = 'it''s $1' || @", "a"), s.statement("note = encode(@::bytea, 'hex')", []byte("a\xff")),
			s.statement("n = (@::jsonb->>'a')::int", `{"a": 3}`))
	} else {
		for _, arg := range []any{"x", []byte("x"), 2.0, 2, []byte(`{"a": 1}`)} {
			uses = append(uses, s.statement("note = JSON_ARRAY(@)", arg))
		}
		// In the text of a query a text is a DOUBLE in arithmetic, a float is a DECIMAL, and an
		// integer behind ORDER BY is a column.
		for _, arg := range []any{"0.01", 0.1, 7, []byte("7")} {
			uses = append(uses, s.statement("note = 12345678901234567.89 + @", arg), s.statement("note = @ * 3", arg),
				s.statement("note = (SELECT a FROM (SELECT 1 a UNION SELECT 2) b ORDER BY @, a DESC LIMIT 1)", arg))
		}
		uses = append(uses, s.statement("note = CONVERT(@ USING latin1)", []byte("é")),
			s.statement("note = HEX(@)", []byte("a\xff")), s.statement("note = DATE(@)", at),
			s.statement("note = (SELECT COUNT(*) FROM (SELECT 1 UNION SELECT 2 LIMIT @) b)", 1))
	}
	for _, use := range uses {
		use.SQL = "UPDATE " + s.table + " SET " + use.SQL + " WHERE id = 1"
		var alone, within sql.NullString
		look := func(into *sql.NullString) {
			require.NoError(t, s.Admin.QueryRow("SELECT CONCAT(n, ' ', note) FROM "+s.table+" WHERE id = 1").Scan(into))
			s.AsAdmin(t, "UPDATE "+s.table+" SET n = 10, note = 'one' WHERE id = 1")
		}
		_, failed := m.Exec(background, use)
		look(&alone)
		err := m.Do(background, func(ctx context.Context, _ Tx) error { return testbed.ErrorOf(m.Exec(ctx, use)) })
		look(&within)
		require.Equal(t, err == nil, failed == nil, "%s %#v: alone %v, in a Do %v", use.SQL, use.Args, failed, err)
		require.Equal(t, within, alone, "%s %#v", use.SQL, use.Args)
	}
}

// panics is an argument that does.
type panics struct{}

func (panics) Value() (driver.Value, error) { panic("of an argument") }

// ExecPanics shows that an argument that panics costs no connection of the pool, and nobody's turn.
func ExecPanics[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newStock(t, testbed.NewSizedFixture(t, e, c, 2, e.Address()))
	m := s.Locks.Mutex(s.key)
	for range 3 {
		require.PanicsWithValue(t, "of an argument", func() {
			_, _ = m.Exec(background, s.take(1), s.statement("UPDATE stock SET n = @", panics{}))
		})
	}
	s.Transactions(t, 0) // the server may learn late that a connection is closed
	require.NoError(t, testbed.ErrorOf(m.TryExec(background, s.take(0))))
	require.Equal(t, 9, s.left(t))
	s.Unused(t)
}

// ExecReturns shows that Into has the first row of a statement.
func ExecReturns[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newStock(t, testbed.NewFixture(t, e, c))
	var left int
	var note sql.NullString
	read := s.statement("SELECT n, note FROM stock WHERE id <= @ ORDER BY id", 2)
	read.Into = []any{&left, &note}
	affected := must.Get(s.Locks.Mutex(s.key).Exec(background, s.take(1), read))(t)
	require.Equal(t, []int64{1, 2}, affected)
	require.Equal(t, 9, left)
	require.Equal(t, "one", note.String)
	if s.Postgres {
		taken := s.take(1)
		taken.SQL += " RETURNING n"
		taken.Into = []any{&left}
		affected = must.Get(s.Locks.Mutex(s.key).Exec(background, taken))(t)
		require.Equal(t, []int64{1}, affected)
		require.Equal(t, 8, left)
	}
}
