package mysql

import (
	"context"
	"database/sql"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// picture is what the server's views show: sessions, and the row locks that they have or wait for.
type picture struct {
	mariadb  bool
	table    string // the lock table, or that of permits, as its user spells it
	column   string // that numbers its rows
	database string // of the connection
	folds    bool   // the server keeps names of tables in small letters
	now      float64
	people   map[string]*dialects.Party // by the number of the connection
	begins   map[string]string          // what tells their transactions apart; see identity
	locks    []rowLock
	leading  map[sqltext.Table]map[string]string // the first column of each index, of callers' tables
}

// rowLock is the lock of an index record.
type rowLock struct {
	session     string
	party       *dialects.Party // the session as it was then; nil if the views did not show it
	transaction string
	waiting     bool
	place       int  // in the queue: how many locks are in front
	shared      bool // FOR SHARE
	sharing     int  // MariaDB shows it as that of each unnumbered session: of so many it is; else 0
	table       sqltext.Table
	index       string
	value       string // the first column of the record
}

// tableColumn is a column of a table, in small letters: case never matters in names of columns.
type tableColumn struct {
	sqltext.Table
	column string
}

// primary is the name of every primary key.
const primary = "PRIMARY"

func newPicture(ctx context.Context, conn *sql.Conn, table string) (*picture, error) {
	if _, err := sqltext.QuoteTable(table); err != nil {
		return nil, err
	}
	lines, err := server.Grid(ctx, conn, "SELECT @@version LIKE '%MariaDB%', DATABASE(), UNIX_TIMESTAMP(NOW(6)), "+
		"@@lower_case_table_names, @@performance_schema")
	if err != nil {
		return nil, err
	}
	p := &picture{
		mariadb: lines[0][0] == "1", table: table, column: "slot", database: lines[0][1], folds: lines[0][3] != "0",
		people:  map[string]*dialects.Party{},
		begins:  map[string]string{},
		leading: map[sqltext.Table]map[string]string{},
	}
	if !p.mariadb && lines[0][4] == "0" {
		return nil, errors.New("the server was started with performance_schema=OFF, and then shows no locks: " +
			"set performance_schema=ON and restart it")
	}
	p.now, err = strconv.ParseFloat(lines[0][2], 64)
	return p, err
}

// slots is the lock table.
func (p *picture) slots() sqltext.Table { return p.named(p.table, p.database) }

// named is the table that a session in database spells so, or the zero value for an invalid name.
func (p *picture) named(spelled, database string) sqltext.Table {
	quoted, err := sqltext.QuoteTable(spelled)
	if err != nil {
		return sqltext.Table{}
	}
	return p.parsed(quoted, database)
}

// parsed reads a name in backquotes.
func (p *picture) parsed(text, database string) sqltext.Table {
	return p.folded(sqltext.TableOf(text, database))
}

// folded is the table as the views name it.
func (p *picture) folded(table sqltext.Table) sqltext.Table {
	if p.folds {
		table.Database, table.Name = strings.ToLower(table.Database), strings.ToLower(table.Name)
	}
	return table
}

// since is a time d ago.
func (p *picture) since(d time.Duration) time.Time {
	return time.UnixMicro(int64(p.now * 1e6)).Add(-d).Round(time.Millisecond)
}

// recordValue is the first column of an index record. The views separate columns by commas, and put
// text in quotes.
func recordValue(data string) string {
	if text, quoted := strings.CutPrefix(data, "'"); quoted {
		value, _ := sqltext.Unquoted(text, '\'')
		return value
	}
	value, _, _ := strings.Cut(data, ",")
	return value
}

// readIndexes reads the first column of each index of those callers' tables in which something is
// locked. The server shows the indexes to users who may read the tables.
func (p *picture) readIndexes(ctx context.Context, conn *sql.Conn) error {
	claimed := p.tables()
	for _, lock := range p.locks {
		if claimed[lock.table] == nil || p.leading[lock.table] != nil {
			continue
		}
		condition, err := lock.table.Is("TABLE_SCHEMA", "TABLE_NAME")
		if err != nil {
			return err
		}
		lines, err := server.Grid(ctx, conn,
			"SELECT INDEX_NAME, COLUMN_NAME FROM information_schema.statistics WHERE SEQ_IN_INDEX = 1 AND "+condition)
		if err != nil {
			return err
		}
		p.leading[lock.table] = map[string]string{}
		for _, line := range lines {
			p.leading[lock.table][line[0]] = strings.ToLower(line[1])
		}
	}
	return nil
}

// tables are the tables that sessions say they lock rows of, with the values of the rows. That of
// leaders is not among them: it is looked at apart.
func (p *picture) tables() map[sqltext.Table][]string {
	values := map[sqltext.Table][]string{}
	var seats sqltext.Table
	if leaders, err := sqltext.LeadersOf(p.table); err == nil {
		seats = p.parsed(leaders, p.database)
	}
	for of, rows := range p.claimed() {
		_, err := of.Is("", "") // no table has an invalid name
		if err != nil || of.Database == "" || of.Name == "" || of.Table == p.slots() || of.Table == seats {
			continue
		}
		for value := range rows {
			values[of.Table] = append(values[of.Table], value)
		}
	}
	return values
}
