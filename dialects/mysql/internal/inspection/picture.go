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
	now      float64
	tables   []ours
	named    bool // only the rows of tables are looked for
	slots    int
	people   map[string]*person // by the number of the connection
	locks    []rowLock
	leading  map[index]string // the first column of each, of callers' tables
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
	begin string // what tells its transactions apart, see unnumbered
}

// rowLock is the lock of an index record.
type rowLock struct {
	session, transaction string // empty: the server does not say whose it is
	waiting              bool
	shared               bool // FOR SHARE
	table                sqltext.Table
	index                string
	value                string // the first column of the record
}

type index struct {
	sqltext.Table
	name string
}

// primary is the name of every primary key.
const primary = "PRIMARY"

// ask runs statements, and returns what the last of them answers.
func (p *picture) ask(ctx context.Context, queries ...string) (lines [][]string, err error) {
	for _, query := range queries {
		if lines, err = server.Grid(ctx, p.conn, query); err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// folded is the table as the views name it.
func (p *picture) folded(table sqltext.Table) sqltext.Table {
	if p.folds {
		table.Database, table.Name = strings.ToLower(table.Database), strings.ToLower(table.Name)
	}
	return table
}

// readTables finds the lock table and those beside it, and which of their rows to look for. A table
// of an older version may be missing, and its users may have been granted only what they needed.
func (p *picture) readTables(ctx context.Context, of dialects.Inspection) error {
	quoted, err := sqltext.QuoteTable(of.Table.Name)
	if err != nil {
		return err
	}
	p.slots, p.named = of.Table.Slots, of.Slots != nil
	slots := ours{Table: p.folded(sqltext.TableOf(quoted, p.database)), quoted: quoted, column: "slot"}
	for _, slot := range of.Slots {
		slots.only = append(slots.only, strconv.Itoa(slot))
	}
	p.tables = []ours{slots}
	err = p.readBeside(ctx, of, dialects.KindSemaphore, locktable.Permits, "permit", "permit >= 0")
	if err == nil {
		err = p.readBeside(ctx, of, dialects.KindElection, locktable.Leaders, "0", "part = 'seat'")
	}
	return err
}

func (p *picture) readBeside(ctx context.Context, of dialects.Inspection, kind dialects.Kind, suffix, permit,
	condition string,
) error {
	quoted, err := sqltext.Beside(of.Table.Name, suffix)
	if err != nil {
		return err
	}
	if of.Names != nil {
		condition += " AND hash IN ('" + strings.Join(of.Names, "', '") + "')" // hexadecimal
	}
	lines, err := p.ask(ctx, fmt.Sprintf("SELECT id, hash, COALESCE(name, ''), %s FROM %s WHERE %s ORDER BY id LIMIT %d",
		permit, quoted, condition, dialects.DefaultSlots))
	switch server.Number(err) {
	case server.NoSuchTable, server.NoPrivilege:
		return nil
	case server.UnknownColumn: // version 0.1 made it
		return server.Ours(err, quoted)
	}
	if err != nil {
		return err
	}
	table := ours{
		Table: p.folded(sqltext.TableOf(quoted, p.database)), quoted: quoted, column: "id",
		rows: map[string]dialects.RowState{},
	}
	for _, line := range lines {
		state := dialects.RowState{Named: dialects.Named{Kind: kind, Hash: line[1], Name: line[2]}, Value: line[0]}
		state.Permit, _ = strconv.Atoi(line[3])
		if table.rows[line[0]] = state; of.Names != nil {
			table.only = append(table.only, line[0])
		}
	}
	p.tables = append(p.tables, table)
	_, err = p.ask(ctx, "ROLLBACK") // it may have begun a transaction
	return err
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

// hear notes what a session says of itself, the newest first.
func (s *person) hear(shown string) {
	s.label = s.label.And(label.Read(shown))
	s.Process = cmp.Or(s.Process, s.label.Process)
}

// lasts notes for how long a session has waited, or has been in its transaction.
func (p *picture) lasts(session *person, d time.Duration) {
	session.For = d
	session.Since = time.UnixMicro(int64(p.now * 1e6)).Add(-d).Round(time.Millisecond)
}

// add notes a lock. The columns say whether it is awaited, whether it is shared, and of which record
// it is.
func (p *picture) add(session, transaction string, table sqltext.Table, index string, columns []string) {
	p.locks = append(p.locks, rowLock{
		session: session, transaction: p.identity(transaction, session), waiting: columns[0] == "1",
		shared: columns[1] == "1", table: table, index: index, value: recordValue(columns[2]),
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

// caller is a row of a caller's table, as the views name the table. Columns are in small letters:
// case never matters in their names.
type caller struct {
	sqltext.Table
	column, value string
}

// callers are the rows of callers' tables that sessions say they lock, as they spell them.
func (p *picture) callers() map[caller]dialects.RowState {
	rows := map[caller]dialects.RowState{}
	for _, session := range p.people {
		session.label.Rows(func(table, column, value string) {
			quoted, err := sqltext.QuoteTable(table)
			name, failed := sqltext.QuoteColumn(column)
			named := p.folded(sqltext.TableOf(quoted, session.Database))
			ours := slices.ContainsFunc(p.tables, func(t ours) bool { return t.Table == named })
			if err != nil || failed != nil || ours || named.Database == "" ||
				!utf8.ValidString(named.Database) { // it came in this session's character set
				return
			}
			row := caller{named, strings.ToLower(sqltext.TableOf(name, "").Name), value}
			rows[row] = dialects.RowState{Table: table, Column: column, Value: value}
		})
	}
	return rows
}

// readIndexes reads the first column of each index of those callers' tables in which something is
// locked. The server shows the indexes to users who may read the tables.
func (p *picture) readIndexes(ctx context.Context) error {
	seen := map[sqltext.Table]bool{}
	for _, table := range p.tables {
		seen[table.Table] = true
	}
	for _, lock := range p.locks {
		if seen[lock.table] {
			continue
		}
		seen[lock.table] = true
		lines, err := p.ask(ctx, "SELECT INDEX_NAME, COLUMN_NAME FROM information_schema.statistics "+
			"WHERE SEQ_IN_INDEX = 1 AND "+lock.table.Is("TABLE_SCHEMA", "TABLE_NAME"))
		if err != nil {
			return err
		}
		for _, line := range lines {
			p.leading[index{lock.table, line[0]}] = strings.ToLower(line[1])
		}
	}
	return nil
}

// states puts the picture together, row by row.
func (p *picture) states() (states []dialects.RowState) {
	callers, rows := p.callers(), map[caller]*dialects.RowState{}
	slices.SortFunc(p.locks, p.inOrder)
	seen := map[caller]map[string]bool{} // the sessions of each row
	for _, lock := range p.locks {
		row, state, known := p.rowOf(lock, callers)
		if !known || lock.session != "" && p.people[lock.session] == nil { // it has ended, or only probes
			continue
		}
		if rows[row] == nil {
			rows[row], seen[row] = &state, map[string]bool{}
		}
		if !seen[row][lock.session] {
			seen[row][lock.session] = true
			p.put(rows[row], lock)
		}
	}
	for _, state := range rows {
		states = append(states, *state)
	}
	return states
}

// inOrder has those that wait first, who came first in front: a session that waits to own what it
// shares is no holder.
func (p *picture) inOrder(a, b rowLock) int {
	waiting := func(lock rowLock) (rank int, since time.Time) {
		if person := p.people[lock.session]; lock.waiting && person != nil {
			return 0, person.Since
		}
		return 1, since
	}
	first, since := waiting(a)
	second, later := waiting(b)
	return cmp.Or(cmp.Compare(first, second), since.Compare(later), cmp.Compare(len(a.session), len(b.session)),
		cmp.Compare(a.session, b.session))
}

// rowOf finds the row of a lock among those of our own and those of callers.
func (p *picture) rowOf(lock rowLock, callers map[caller]dialects.RowState) (
	row caller, state dialects.RowState, known bool,
) {
	for _, table := range p.tables {
		if table.Table != lock.table {
			continue
		}
		row = caller{table.Table, "", lock.value}
		if table.rows != nil {
			state, known = table.rows[lock.value]
			return row, state, known && lock.index == primary
		}
		_, err := strconv.Atoi(lock.value) // else it is the end of the index, or not in memory
		return row, dialects.RowState{Value: lock.value}, err == nil && lock.index == primary
	}
	row = caller{lock.table, p.leading[index{lock.table, lock.index}], lock.value}
	state, known = callers[row]
	return row, state, known
}

// put adds the session of a lock to the row.
func (p *picture) put(state *dialects.RowState, lock rowLock) {
	party := dialects.Party{Shared: lock.shared}
	if session := p.people[lock.session]; session != nil {
		party = session.Party
		party.Transaction, party.Shared = lock.transaction, lock.shared
		if slot, err := strconv.Atoi(state.Value); err == nil && state.Column == "" && state.Named.Kind == dialects.KindRow {
			party.Key = session.label.Key(slot, p.slots)
		}
	}
	switch {
	case lock.waiting:
		state.Waiters = append(state.Waiters, party)
	case lock.shared:
		state.Readers = append(state.Readers, party)
	case state.Holder == nil:
		state.Holder = &party
	}
}
