package mysql

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
)

// scene is what the server's views show: sessions, and the row locks that they have or wait for.
type scene struct {
	mariadb  bool
	table    string // the lock table, as its user spells it
	database string // of the connection
	folds    bool   // the server keeps names of tables in small letters
	now      float64
	people   map[string]*dialects.Party // by the number of the connection
	locks    []rowLock
	leading  map[tableName]map[string]string // the first column of each index, of callers' tables
}

// rowLock is the lock of an index record.
type rowLock struct {
	session     string
	party       *dialects.Party // the session as it was then; nil if the views did not show it
	transaction string
	waiting     bool
	place       int  // in the queue: how many locks are in front
	shared      bool // FOR SHARE
	table       tableName
	index       string
	value       string // the first column of the record
}

// tableName is a table as the server's views name it.
type tableName struct{ database, name string }

// tableColumn is a column of a table, in small letters: case never matters in names of columns.
type tableColumn struct {
	tableName
	column string
}

// primary is the name of every primary key.
const primary = "PRIMARY"

func newScene(ctx context.Context, conn *sql.Conn, table string) (*scene, error) {
	if _, err := quoteTable(table); err != nil {
		return nil, err
	}
	lines, err := grid(ctx, conn, "SELECT @@version LIKE '%MariaDB%', DATABASE(), UNIX_TIMESTAMP(NOW(6)), "+
		"@@lower_case_table_names, @@performance_schema")
	if err != nil {
		return nil, err
	}
	s := &scene{
		mariadb: lines[0][0] == "1", table: table, database: lines[0][1], folds: lines[0][3] != "0",
		people:  map[string]*dialects.Party{},
		leading: map[tableName]map[string]string{},
	}
	if !s.mariadb && lines[0][4] == "0" {
		return nil, errors.New("the server was started with performance_schema=OFF, and then shows no locks: " +
			"set performance_schema=ON and restart it")
	}
	s.now, err = strconv.ParseFloat(lines[0][2], 64)
	return s, err
}

// slots is the lock table.
func (s *scene) slots() tableName { return s.named(s.table, s.database) }

// named is the table that a session in database spells so, or the zero value for an invalid name.
func (s *scene) named(spelled, database string) tableName {
	quoted, err := quoteTable(spelled)
	if err != nil {
		return tableName{}
	}
	return s.parsed(quoted, database)
}

// parsed reads a name in backquotes.
func (s *scene) parsed(text, database string) tableName {
	name, rest := upTo(strings.TrimPrefix(text, "`"), '`')
	if further, qualified := strings.CutPrefix(rest, ".`"); qualified {
		database = name
		name, _ = upTo(further, '`')
	}
	return s.nameOf(database, name)
}

func (s *scene) nameOf(database, name string) tableName {
	if s.folds {
		database, name = strings.ToLower(database), strings.ToLower(name)
	}
	return tableName{database, name}
}

// upTo is the text before the quote that ends it, which is not doubled, and the rest behind it.
func upTo(text string, quote byte) (inside, rest string) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] == quote {
			if i++; i == len(text) || text[i] != quote {
				return b.String(), text[i:]
			}
		}
		b.WriteByte(text[i])
	}
	return b.String(), ""
}

// since is a time d ago.
func (s *scene) since(d time.Duration) time.Time {
	return time.UnixMicro(int64(s.now * 1e6)).Add(-d).Round(time.Millisecond)
}

// recordValue is the first column of an index record. The views separate columns by commas, and put
// text in quotes.
func recordValue(data string) string {
	if text, quoted := strings.CutPrefix(data, "'"); quoted {
		value, _ := upTo(text, '\'')
		return value
	}
	value, _, _ := strings.Cut(data, ",")
	return value
}

// rowName is a row as its user spells it: of slots, column is empty.
type rowName struct{ table, column, value string }

// rowOf tells rows apart that sessions in different databases spell alike.
type rowOf struct {
	table tableName
	rowName
}

// states puts the scene together, row by row.
func (s *scene) states() []dialects.RowState {
	names := s.claimed()
	rows := map[rowOf][]rowLock{}
	for _, lock := range s.locks {
		if name, known := s.rowOf(lock, names); known {
			rows[rowOf{lock.table, name}] = append(rows[rowOf{lock.table, name}], lock)
		}
	}
	states := make([]dialects.RowState, 0, len(rows))
	for row, locks := range rows {
		if state := state(row.rowName, locks); state.Holder != nil || len(state.Waiters) > 0 {
			states = append(states, state)
		}
	}
	return states
}

// claimed are the rows of callers' tables that sessions say they lock, by column and value.
func (s *scene) claimed() map[tableColumn]map[string]rowName {
	names := map[tableColumn]map[string]rowName{}
	for _, party := range s.people {
		for _, claim := range party.Claims {
			column, err := quoteIdentifier(claim.Column, 1)
			if claim.Table == "" || err != nil {
				continue
			}
			column, _ = upTo(column[1:], '`')
			of := tableColumn{s.named(claim.Table, party.Database), strings.ToLower(column)}
			if names[of] == nil {
				names[of] = map[string]rowName{}
			}
			for _, value := range claim.Items {
				names[of][value] = rowName{claim.Table, claim.Column, value}
			}
		}
	}
	return names
}

// rowOf names the row that is locked. A record of an index that begins with another column does not
// tell.
func (s *scene) rowOf(lock rowLock, names map[tableColumn]map[string]rowName) (name rowName, known bool) {
	if lock.table == s.slots() {
		_, err := strconv.Atoi(lock.value) // else the end of the index, or a page that is not in memory
		return rowName{s.table, "", lock.value}, lock.index == primary && err == nil
	}
	column, known := s.leading[lock.table][lock.index]
	if known {
		name, known = names[tableColumn{lock.table, column}][lock.value]
	}
	return name, known
}

// readIndexes reads the first column of each index of those callers' tables in which something is
// locked. The server shows the indexes to users who may read the tables.
func (s *scene) readIndexes(ctx context.Context, conn *sql.Conn) error {
	claimed := s.tables()
	for _, lock := range s.locks {
		if claimed[lock.table] == nil || s.leading[lock.table] != nil {
			continue
		}
		condition, err := lock.table.is("TABLE_SCHEMA", "TABLE_NAME")
		if err != nil {
			return err
		}
		lines, err := grid(ctx, conn,
			"SELECT INDEX_NAME, COLUMN_NAME FROM information_schema.statistics WHERE SEQ_IN_INDEX = 1 AND "+condition)
		if err != nil {
			return err
		}
		s.leading[lock.table] = map[string]string{}
		for _, line := range lines {
			s.leading[lock.table][line[0]] = strings.ToLower(line[1])
		}
	}
	return nil
}

// tables are the tables that sessions say they lock rows of, with the values of the rows.
func (s *scene) tables() map[tableName][]string {
	values := map[tableName][]string{}
	for of, rows := range s.claimed() {
		_, err := of.is("", "") // no table has an invalid name
		if err != nil || of.database == "" || of.name == "" || of.tableName == s.slots() {
			continue
		}
		for value := range rows {
			values[of.tableName] = append(values[of.tableName], value)
		}
	}
	return values
}

// is is the condition that two columns name the table. The bare columns let the server look it up.
func (t tableName) is(database, name string) (string, error) {
	first, err := literal(dialects.Value{Text: t.database})
	second, failed := literal(dialects.Value{Text: t.name})
	return database + " = " + first + " AND " + name + " = " + second, cmp.Or(err, failed)
}

func state(name rowName, locks []rowLock) dialects.RowState {
	state := dialects.RowState{Table: name.table, Column: name.column, Value: name.value}
	slices.SortFunc(locks, func(a, b rowLock) int {
		return cmp.Or(cmp.Compare(a.place, b.place), compareBool(a.shared, b.shared),
			cmp.Compare(len(a.session), len(b.session)), cmp.Compare(a.session, b.session))
	})
	waits := map[string]bool{}
	for _, lock := range locks {
		waits[lock.session] = waits[lock.session] || lock.waiting
	}
	seen := map[string]bool{}
	for _, lock := range locks {
		sharing := lock.shared && !lock.waiting && waits[lock.session] // and it waits to own the row
		if lock.party == nil || seen[lock.session] || sharing {
			continue
		}
		seen[lock.session] = true
		shown := *lock.party
		shown.Transaction = lock.transaction
		switch {
		case lock.waiting:
			state.Waiters = append(state.Waiters, shown)
		case state.Holder == nil:
			state.Holder = &shown
		}
	}
	return state
}

// compareBool puts false first.
func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
