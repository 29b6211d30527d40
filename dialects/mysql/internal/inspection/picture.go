package inspection

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// target is the rows that are looked at.
type target struct {
	table  string     // the lock table, or one beside it, quoted
	column string     // that numbers its rows
	slots  int        // of the lock table
	only   []int      // rows that are looked for alone; nil: all, and those of callers' tables
	beside [][]string // of the rows of a table beside the lock table: number, hash, name, permit
}

// picture is what the server's views show: sessions, and the row locks that they have or wait for.
type picture struct {
	target
	conn     *sql.Conn
	views    views
	database string        // of the connection
	own      sqltext.Table // the target's
	folds    bool          // the server keeps names of tables in small letters
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

// primary is the name of every primary key.
const primary = "PRIMARY"

func newPicture(conn *sql.Conn) *picture {
	return &picture{
		conn: conn, people: map[string]*dialects.Party{}, begins: map[string]string{},
		leading: map[sqltext.Table]map[string]string{},
	}
}

// ask runs statements, and returns what the last of them answers.
func (p *picture) ask(ctx context.Context, queries ...string) (lines [][]string, err error) {
	for _, query := range queries {
		if lines, err = server.Grid(ctx, p.conn, query); err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// parsed reads a name in backquotes.
func (p *picture) parsed(quoted, database string) sqltext.Table {
	return p.folded(sqltext.TableOf(quoted, database))
}

// folded is the table as the views name it.
func (p *picture) folded(table sqltext.Table) sqltext.Table {
	if p.folds {
		table.Database, table.Name = strings.ToLower(table.Database), strings.ToLower(table.Name)
	}
	return table
}

// meet notes the session of a line that begins with columns of the process list. It waits if its
// statement has a label.
func (p *picture) meet(line []string) (party *dialects.Party, waits bool) {
	party = &dialects.Party{
		Session: line[0], User: line[1], Host: line[2], Database: line[3], Idle: line[4] == "Sleep", Statement: line[5],
	}
	p.people[party.Session] = party
	shown := sqltext.LabelIn(party.Statement)
	hear(party, shown)
	return party, shown != ""
}

// hear notes what a session says of itself in labels, the newest first. The views may show a
// statement as running for some time after its answer. What it was granted since it began is newer,
// and comes in front. A variable with an older grant is what the session held before.
func hear(party *dialects.Party, labels ...string) {
	for _, shown := range labels {
		_, process, brackets := label.Read(shown)
		party.Process = cmp.Or(party.Process, process)
		begun := party.Since.Add(-2 * time.Millisecond) // both are rounded
		if slices.ContainsFunc(brackets, func(c dialects.Shown) bool { return c.At.After(begun) }) && party.For > 0 {
			brackets, party.Shown = party.Shown, brackets
		}
		party.Shown = append(party.Shown, brackets...)
	}
}

// lasts notes for how long a session has waited, or has been in its transaction.
func (p *picture) lasts(party *dialects.Party, d time.Duration) {
	party.For = d
	party.Since = time.UnixMicro(int64(p.now * 1e6)).Add(-d).Round(time.Millisecond)
}

// add notes a lock. The columns say whether it is awaited, whether it is shared, of which record it
// is, and its place.
func (p *picture) add(session, transaction string, table sqltext.Table, index string, columns []string, sharing int) {
	place, _ := strconv.Atoi(columns[3])
	p.locks = append(p.locks, rowLock{
		session: session, party: p.people[session], transaction: p.identity(transaction, session),
		waiting: columns[0] == "1", shared: columns[1] == "1", sharing: sharing, place: place,
		table: table, index: index, value: recordValue(columns[2]),
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

// readIndexes reads the first column of each index of those callers' tables in which something is
// locked. The server shows the indexes to users who may read the tables.
func (p *picture) readIndexes(ctx context.Context) error {
	shown := p.shown()
	for _, lock := range p.locks {
		if shown[lock.table] == nil || p.leading[lock.table] != nil {
			continue
		}
		lines, err := p.ask(ctx, "SELECT INDEX_NAME, COLUMN_NAME FROM information_schema.statistics "+
			"WHERE SEQ_IN_INDEX = 1 AND "+lock.table.Is("TABLE_SCHEMA", "TABLE_NAME"))
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
