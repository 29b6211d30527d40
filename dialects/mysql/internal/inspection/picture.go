package inspection

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
	"github.com/txlock/txlock/internal/locktable"
)

// picture is what the server's views show: sessions, and the row locks that they have or wait for.
type picture struct {
	conn     *sql.Conn
	views    views
	database string // of the connection
	folds    bool   // the server keeps names of tables in small letters
	of       dialects.Inspection
	tables   []ours
	people   map[string]*person // by the number of the connection
	locks    []rowLock
}

// ours is a table of txlock's, whose rows have numbers.
type ours struct {
	sqltext.Table
	quoted, column string
	only           []string                     // rows that are looked for alone
	rows           map[string]dialects.RowState // of a table beside the lock table: whose they are
}

// person is a session.
type person struct {
	dialects.Party
	label label.Label
	begin string // what tells its transactions apart: see pin
}

// unknown ends the name of a transaction that nobody can tell from others of its session.
const unknown = " "

// pin notes the transaction of the session. InnoDB numbers one when it first locks a row alone. One
// that only shares rows has the number 0 on MariaDB, and on MySQL the address of a structure that
// its session uses again for the next transaction. MySQL's event tells which it is, and on MariaDB
// the second in which it began.
func (s *person) pin(number string) {
	const firstAddress = 1 << 48 // the least of the numbers that MySQL makes of addresses
	if n, _ := strconv.ParseUint(number, 10, 64); n == 0 || n >= firstAddress {
		number += unknown + s.begin
	}
	s.Transaction = number
}

// rowLock is the lock of an index record.
type rowLock struct {
	session string // empty: the server does not say which
	waiting bool
	shared  bool // FOR SHARE
	table   sqltext.Table
	index   string
	value   string // the first column of the record
}

// primary is the name of every primary key.
const primary = "PRIMARY"

// ask returns what the server answers.
func (p *picture) ask(ctx context.Context, query string) ([][]string, error) {
	return server.Grid(ctx, p.conn, query)
}

// table is the table of a name in backquotes as the views name it.
func (p *picture) table(quoted, database string) sqltext.Table {
	table := sqltext.TableOf(quoted, database)
	if p.folds {
		table.Database, table.Name = strings.ToLower(table.Database), strings.ToLower(table.Name)
	}
	return table
}

// readTables finds the lock table and those beside it, and which of their rows to look for.
func (p *picture) readTables(ctx context.Context, of dialects.Inspection) error {
	p.of = of
	quoted, err := sqltext.QuoteTable(p.of.Table.Name)
	if err != nil {
		return err
	}
	p.tables = []ours{{Table: p.table(quoted, p.database), quoted: quoted, column: "slot", only: p.of.Slots}}
	nameOf, err := sqltext.Beside(p.of.Table.Name)
	if err != nil {
		return err
	}
	named := ""
	if p.of.Names != nil {
		named = " AND hash IN ('" + strings.Join(p.of.Names, "', '") + "')" // hexadecimal
	}
	for _, beside := range []struct {
		kind              dialects.Kind
		suffix, condition string
	}{
		{dialects.KindSemaphore, locktable.Permits, "permit FROM %s WHERE permit >= 0"},
		{dialects.KindElection, locktable.Leaders, "0 FROM %s WHERE part = 'seat'"},
	} {
		quoted := nameOf(beside.suffix)
		lines, err := p.ask(ctx, fmt.Sprintf("SELECT id, hash, COALESCE(name, ''), "+beside.condition, quoted)+named)
		switch number := server.Number(err); {
		case number == server.NoSuchTable, number == server.NoPrivilege:
			continue // of an older version, whose users were granted what they needed
		case err != nil:
			return server.Ours(err, quoted)
		}
		table := ours{
			Table: p.table(quoted, p.database), quoted: quoted, column: "id", rows: map[string]dialects.RowState{},
		}
		for _, line := range lines {
			permit, _ := strconv.Atoi(line[3])
			table.rows[line[0]] = dialects.RowState{
				Named: dialects.Named{Kind: beside.kind, Hash: line[1], Name: line[2]}, Permit: permit, Value: line[0],
			}
			if named != "" {
				table.only = append(table.only, line[0])
			}
		}
		p.tables = append(p.tables, table)
	}
	return nil
}

// meet notes the session of a line that begins with columns of the process list. It waits if its
// statement has a label.
func (p *picture) meet(line []string) (session *person, waits bool) {
	session = &person{Party: dialects.Party{
		Session: line[0], User: line[1], Host: line[2], Database: line[3], Idle: line[4] == "Sleep", Statement: line[5],
	}}
	p.people[line[0]] = session
	shown := sqltext.LabelIn(session.Statement)
	session.hear(shown)
	return session, shown != ""
}

// hear notes what a session says of itself.
func (s *person) hear(shown string) {
	s.label = s.label.And(label.Read(shown))
	s.Process = cmp.Or(s.Process, s.label.Process)
}

// lasts notes for how long a session has waited, or has been in its transaction.
func (s *person) lasts(now string, seconds float64) {
	at, _ := strconv.ParseFloat(now, 64)
	s.For = max(time.Duration(seconds*float64(time.Second)), 0)
	s.Since = time.UnixMicro(int64(at * 1e6)).Add(-s.For).Round(time.Millisecond)
}

// add notes a lock. The columns say in which index it is, whether it is awaited, whether it is
// shared, and of which record it is.
func (p *picture) add(session string, table sqltext.Table, columns []string) {
	p.locks = append(p.locks, rowLock{
		session, columns[1] == "1", columns[2] == "1", table, strings.Trim(columns[0], "`"), recordValue(columns[3]),
	})
}

// asPrinted and asMeant go between a text and what InnoDB prints of it: ut_str_sql_format in the
// sources of both servers.
var (
	asPrinted = strings.NewReplacer("'", "''", `\`, `\\`, "\x00", `\0`)
	asMeant   = strings.NewReplacer(`\\`, `\`, `\0`, "\x00")
)

// recordValue is the first column of an index record. The views separate columns by commas, and put
// text in quotes.
func recordValue(data string) string {
	if text, quoted := strings.CutPrefix(data, "'"); quoted {
		value, _ := sqltext.Unquoted(text, '\'')
		return asMeant.Replace(value)
	}
	value, _, _ := strings.Cut(data, ",")
	return value
}

// row is one as the views name it. Columns are in small letters: case never matters in their names.
type row struct {
	sqltext.Table
	column, value string
}

// callers are the rows of callers' tables that sessions say they lock, as they spell them: none if
// only some rows are looked for.
func (p *picture) callers() map[row]dialects.RowState {
	rows := map[row]dialects.RowState{}
	for _, session := range p.people {
		session.label.Rows(func(table, column, value string) {
			quoted, err := sqltext.QuoteTable(table)
			name, failed := sqltext.QuoteColumn(column)
			of := row{p.table(quoted, session.Database), strings.ToLower(sqltext.TableOf(name, "").Name), value}
			// Its name may have come in this session's character set.
			if err == nil && failed == nil && p.of.Slots == nil && of.Database != "" && utf8.ValidString(of.Database) {
				rows[of] = dialects.RowState{Table: table, Column: column, Value: value}
			}
		})
	}
	return rows
}

// columnOf reads the first column of an index of a caller's table. The server shows the indexes to
// users who may read the table.
func (p *picture) columnOf(ctx context.Context, table sqltext.Table, index string) (string, error) {
	lines, err := p.ask(ctx, "SELECT COLUMN_NAME, INDEX_NAME FROM information_schema.statistics "+
		"WHERE SEQ_IN_INDEX = 1 AND "+table.Is("TABLE_SCHEMA", "TABLE_NAME"))
	for _, line := range lines {
		if line[1] == index {
			return strings.ToLower(line[0]), nil
		}
	}
	return "", err
}

// states puts the picture together, row by row. A session that waits to own what it shares waits.
func (p *picture) states(ctx context.Context) (states []dialects.RowState, err error) {
	type of struct{ row, session string }
	callers, columns := p.callers(), map[row]string{}
	rows, seen := map[row]*dialects.RowState{}, map[of]bool{}
	slices.SortFunc(p.locks, p.inOrder)
	for _, lock := range p.locks {
		if lock.session != "" && p.people[lock.session] == nil { // it has ended, or only probes
			continue
		}
		at, state, known := p.own(lock)
		if at.column == "" {
			index := row{lock.table, "", lock.index}
			column, read := columns[index]
			if !read {
				if column, err = p.columnOf(ctx, lock.table, lock.index); err != nil {
					return nil, err
				}
				columns[index] = column
			}
			at = row{lock.table, column, lock.value}
			state, known = callers[at]
		}
		if who := (of{fmt.Sprint(at), lock.session}); known && !seen[who] {
			seen[who] = true
			if rows[at] == nil {
				rows[at] = &state
			}
			p.put(rows[at], lock)
		}
	}
	for _, state := range rows {
		states = append(states, *state)
	}
	return states, nil
}

// own finds the row of a lock in a table of ours.
func (p *picture) own(lock rowLock) (at row, state dialects.RowState, known bool) {
	for _, table := range p.tables {
		if table.Table == lock.table {
			_, err := strconv.Atoi(lock.value) // else it is the end of the index, or not in memory
			if state, known = table.rows[lock.value]; table.rows == nil {
				state, known = dialects.RowState{Value: lock.value}, true
			}
			return row{lock.table, table.column, lock.value}, state, known && err == nil && lock.index == primary
		}
	}
	return at, state, false
}

// inOrder has those that wait first, who came first in front.
func (p *picture) inOrder(a, b rowLock) int {
	waits := func(lock rowLock) (rank int, since time.Time) {
		if person := p.people[lock.session]; lock.waiting && person != nil {
			return 0, person.Since
		}
		return 1, since
	}
	first, since := waits(a)
	second, later := waits(b)
	return cmp.Or(cmp.Compare(first, second), since.Compare(later), cmp.Compare(len(a.session), len(b.session)),
		cmp.Compare(a.session, b.session))
}

// put adds the session of a lock to the row.
func (p *picture) put(state *dialects.RowState, lock rowLock) {
	party := dialects.Party{}
	if session := p.people[lock.session]; session != nil {
		if party = session.Party; state.Column == "" && state.Kind == dialects.KindRow {
			party.Key = session.label.Key(state.Value, p.of.Table.Slots, true)
		}
	}
	party.Shared = lock.shared
	switch {
	case lock.waiting:
		state.Waiters = append(state.Waiters, party)
	case lock.shared:
		state.Readers = append(state.Readers, party)
	case state.Holder == nil:
		state.Holder = &party
	}
}
