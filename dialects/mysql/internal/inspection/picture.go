package inspection

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/internal/label"
)

// picture is what the server's views show: sessions, and the rows that they have or wait for.
type picture struct {
	views
	client.Conn
	folds   bool // the server keeps names of tables in small letters
	of      dialects.Inspection
	slots   server.Table             // the lock table
	rows    map[place]dialects.Entry // but for those of the lock table
	where   []string                 // conditions on locks, that all these rows meet
	named   []named                  // rows that are looked for alone
	people  map[string]*person
	entries []dialects.Entry
}

// place is where a row is, as the views name it: an index, and how a record begins, up to a comma.
type place struct {
	server.Table
	index, record string
}

// person is a session.
type person struct {
	dialects.Party
	label                    label.Label
	waits, lasts, now, begun string // as peopleSQL has them
}

// table is the table of a name in backquotes as the views name it.
func (p *picture) table(quoted, database string) server.Table {
	table := server.TableOf(quoted, database)
	if p.folds {
		table.Database, table.Name = strings.ToLower(table.Database), strings.ToLower(table.Name)
	}
	return table
}

// readTables finds the lock table and those beside it, and which of their rows to look for.
func (p *picture) readTables(ctx context.Context) error {
	quoted, err := server.QuoteTable(p.of.Table.Name)
	p.slots, p.rows = p.table(quoted, ""), map[place]dialects.Entry{}
	p.where = []string{p.slots.Is("l.OBJECT_SCHEMA", "l.OBJECT_NAME")}
	for _, slot := range p.of.Slots {
		p.named = append(p.named, named{dialects.Entry{Value: slot}, quoted, "slot"})
	}
	if p.of.Brief || err != nil {
		return err
	}
	asked := ""
	if p.of.Names != nil {
		asked = " AND hash IN ('" + strings.Join(p.of.Names, "', '") + "')" // hexadecimal
	}
	for _, of := range [][2]string{
		{p.of.Table.Kinds.Permits.Table, "permit, 'semaphore' FROM %s WHERE permit >= 0"},
		{p.of.Table.Kinds.Leaders.Table, "0, 'election' FROM %s WHERE part = 'seat'"},
	} {
		quoted := of[0]
		lines, err := p.Grid(ctx, "SELECT id, hash, COALESCE(name, ''), "+fmt.Sprintf(of[1], quoted)+asked)
		switch number := server.Number(err); {
		case number == server.NoSuchTable, number == server.NoPrivilege:
			continue // of an older version, whose users were granted what they needed
		case err != nil:
			return server.Ours(err, quoted)
		}
		table := p.table(quoted, "")
		p.where = append(p.where, table.Is("l.OBJECT_SCHEMA", "l.OBJECT_NAME"))
		for _, line := range lines {
			row := dialects.Entry{Kind: dialects.Kind(line[4]), Hash: line[1], Name: line[2], Value: line[0]}
			row.Permit, _ = strconv.Atoi(line[3])
			p.rows[place{table, "PRIMARY", row.Value}] = row
			if asked != "" {
				p.named = append(p.named, named{row, quoted, "id"})
			}
		}
	}
	return nil
}

// read reads the sessions, and the locks just behind them, so that their owners are there.
func (p *picture) read(ctx context.Context) error {
	err := p.readPeople(ctx)
	if err == nil && p.of.Slots == nil {
		err = p.readCallers(ctx)
	}
	if err != nil {
		return err
	}
	query := p.locksSQL
	if !p.mariadb {
		query = "WITH o AS (" + p.ownersSQL + ") " + query + strings.Join(p.where, " UNION ALL "+query)
	}
	locks, err := p.Grid(ctx, query)
	before := p.entries
	for _, line := range locks {
		if e, known := p.entryOf(line); known && !isHeld(before, e) {
			p.entries = append(p.entries, e)
		}
	}
	slices.SortStableFunc(p.entries, func(a, b dialects.Entry) int { // who came first in front
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(len(a.ID), len(b.ID)), cmp.Compare(a.ID, b.ID))
	})
	return err
}

func (p *picture) readPeople(ctx context.Context) error {
	if p.mariadb {
		if err := p.renew(ctx); err != nil {
			return err
		}
	}
	lines, err := p.Grid(ctx, p.peopleSQL)
	p.people = map[string]*person{"": {}} // of whom nothing is known
	for _, line := range lines {
		s := &person{
			Party: dialects.Party{
				ID: line[0], User: line[1], Host: line[2], Database: line[3], Idle: line[4] == "Sleep",
				Statement: line[5], Application: line[10],
			},
			waits: line[6], lasts: line[7], now: line[8], begun: line[9],
		}
		s.hear(server.LabelIn(s.Statement))
		p.people[s.ID] = s
	}
	if err != nil {
		return err
	}
	said, _ := p.Grid(ctx, saidSQL) // MariaDB's default is not to show it
	for _, line := range said {
		if s := p.people[line[0]]; s != nil {
			s.Statement = cmp.Or(s.Statement, line[1])
			s.hear(server.LabelIn(line[1]))
		}
	}
	return nil
}

// hear notes what the session says of itself.
func (s *person) hear(shown string) {
	s.label = s.label.And(label.Read(shown))
	s.Process = s.label.Process
}

// readCallers finds the rows of callers' tables that sessions say they lock, among what may be
// millions, in the indexes that begin with their column: none of a table that is hidden.
func (p *picture) readCallers(ctx context.Context) error {
	callers := map[server.Table][]dialects.Entry{}
	for _, s := range p.people {
		s.label.Rows(func(name, column, value string) {
			quoted, err := server.QuoteTable(name)
			table := p.table(quoted, s.Database)
			// Its name may have come in this session's character set.
			if err == nil && table.Database != "" && utf8.ValidString(table.Database) {
				callers[table] = append(callers[table], dialects.Entry{Table: name, Column: column, Value: value})
			}
		})
	}
	for table, rows := range callers {
		indexes, err := p.Grid(ctx, "SELECT INDEX_NAME, LOWER(COLUMN_NAME) FROM information_schema.statistics WHERE "+
			"SEQ_IN_INDEX = 1 AND "+table.Is("TABLE_SCHEMA", "TABLE_NAME"))
		if err != nil {
			return err
		}
		records := []string{"''"}
		for _, row := range rows {
			column, _ := server.QuoteColumn(row.Column)
			for _, text := range printed(row.Value) {
				record, _, _ := strings.Cut(text, ",")
				for _, index := range indexes {
					if index[1] == strings.ToLower(server.TableOf(column, "").Name) {
						p.rows[place{table, index[0], record}] = row
					}
				}
				if literal, err := server.Literal(dialects.Value{Text: record}); err == nil {
					records = append(records, literal)
				}
			}
		}
		p.where = append(p.where, table.Is("l.OBJECT_SCHEMA", "l.OBJECT_NAME")+
			" AND SUBSTRING_INDEX(l.LOCK_DATA, ',', 1) IN ("+strings.Join(records, ", ")+")")
	}
	return nil
}

// entryOf reads a line of locks.
func (p *picture) entryOf(line []string) (e dialects.Entry, known bool) {
	record, _, _ := strings.Cut(line[6], ",")
	at := place{p.table(line[2], ""), strings.Trim(line[3], "`"), record}
	if e, known = p.rows[at]; at.Table == p.slots && at.index == "PRIMARY" {
		_, err := strconv.Atoi(record) // else it is the end of the index, or not in memory
		e.Value, known = record, err == nil
	}
	isRow := func(text string) bool { return strings.HasPrefix(line[6], text) } // of those that begin alike
	s := p.people[line[0]]
	if !known || s == nil || !slices.ContainsFunc(printed(e.Value), isRow) { // or the session has ended
		return e, false
	}
	e.Party, e.Transaction = s.Party, pin(line[1], s.begun)
	e.Waits, e.Shared = line[4] == "1", line[5] == "1"
	if e.Kind == dialects.KindRow && e.Column == "" {
		e.Key = s.label.Key(e.Value, p.of.Table.Slots, true)
	}
	span := s.lasts // for how long the session has been in its transaction, or has waited
	if e.Waits {
		span = s.waits
	}
	now, _ := strconv.ParseFloat(s.now, 64)
	if seconds, err := strconv.ParseFloat(span, 64); err == nil {
		e.For = max(time.Duration(seconds*float64(time.Second)), 0)
		e.Since = time.UnixMicro(int64(now * 1e6)).Add(-e.For).Round(time.Millisecond)
	}
	return e, true
}

// unknown ends the name of a transaction that nobody can tell from others of its session.
const unknown = " "

// pin names the transaction of a session. InnoDB numbers one when it first locks a row alone. One
// that only shares rows has the number 0 on MariaDB, and on MySQL the address of a structure that
// its session uses again. MySQL's event tells which it is, on MariaDB the second of its begin.
func pin(number, begun string) string {
	const firstAddress = 1 << 48 // the least of the numbers that MySQL makes of addresses
	if n, _ := strconv.ParseUint(number, 10, 64); n == 0 || n >= firstAddress {
		return number + unknown + begun
	}
	return number
}

var asPrinted = strings.NewReplacer("'", "''", `\`, `\\`, "\x00", `\0`)

// printed are a number and a text as InnoDB prints them: ut_str_sql_format in its sources.
func printed(value string) []string { return []string{value, "'" + asPrinted.Replace(value) + "'"} }
