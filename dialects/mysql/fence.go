package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/internal/locktable"
)

// fence is what tokens are made of: the server's UUID_SHORT(), a counter in its memory that every
// call increases, and the number of the server's run. Both are read by the statement that locks the
// rows, row by row as they are locked; nothing is written.
//
// The counter begins anew with the server. So runs, a table in memory that a restart empties, says
// with which number and at which count this run began. Its row names the server, for on a replica
// that takes over it has another's; and that of the primary is only good as long as no other server
// has taken over since and told its replicas so, by a row with a higher number. Where there is no
// good row, no token comes, and the next holder draws a number from epochs, an ordinary table: one
// that is committed, and replicated as far as the server waits for that, before the first token is
// made of it.
//
// Only tables in memory are read in the session: a plain SELECT of InnoDB's would take the
// transaction's snapshot before the lock.
type fence struct{ epochs, runs string }

// errNoRun says that the server was restarted, or has taken over from another, since the last
// token.
var errNoRun = errors.New("no token: the server was restarted or has taken over")

// fenceOf are the names behind the lock table's own, quoted. The server refuses those that are too
// long.
func fenceOf(table string) (fence, error) {
	quoted, err := quoteTable(table)
	stem := strings.TrimSuffix(quoted, "`")
	return fence{epochs: stem + "_epochs`", runs: stem + "_runs`"}, err
}

// run is the number of the server's run and the count at which it began, or NULL.
func (f fence) run() string {
	return "(SELECT CONCAT(epoch, ' ', start) FROM " + f.runs + " WHERE server = @@server_id AND " +
		"UUID_SHORT() - CAST(start AS DECIMAL(20)) BETWEEN 1 AND 1099511627775 AND epoch = (SELECT MAX(epoch) FROM " + f.runs + "))"
}

// read is an assignment that keeps the run in a variable of the session, which cannot outlive the run.
func (f fence) read() string { return "@txlock_run = " + f.run() }

// counted is a column that holds another, and what a token is made of. It is NULL without a run.
func counted(column string) string {
	return "CONCAT(" + column + ", ' ', UUID_SHORT(), ' ', @txlock_run)"
}

// tokenOf takes the columns of counted apart. The row that was locked last was counted last.
func tokenOf(rows []string) (columns []string, token int64, err error) {
	for _, row := range rows {
		fields := strings.Fields(row)
		if len(fields) != 4 {
			return nil, 0, errNoRun
		}
		var numbers [3]uint64
		for i, field := range fields[1:] {
			if numbers[i], err = strconv.ParseUint(field, 10, 64); err != nil {
				return nil, 0, err
			}
		}
		count, epoch, start := numbers[0], numbers[1], numbers[2]
		if count <= start || count-start >= 1<<40 { // more than a run has room for, or the row is another's, and was brought here by a dump
			return nil, 0, errNoRun
		}
		made, err := fencing.Token(epoch, count-start)
		if err != nil {
			return nil, 0, err
		}
		columns = append(columns, fields[0])
		token = max(token, made)
	}
	return columns, token, nil
}

func (f fence) schema() []string {
	return []string{
		"CREATE TABLE IF NOT EXISTS " + f.epochs + " (\n    epoch BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY\n) ENGINE=InnoDB",
		"CREATE TABLE IF NOT EXISTS " + f.runs + " (\n    server BIGINT UNSIGNED NOT NULL PRIMARY KEY,\n" +
			"    epoch BIGINT NOT NULL,\n    start BIGINT UNSIGNED NOT NULL\n) ENGINE=MEMORY",
	}
}

// turnOfLift is a lock of the server's, so that of several that find no run one numbers it.
const turnOfLift = "txlock_fence"

// lift numbers the server's run. Each statement commits by itself: with GTIDs a table in memory must not be written in a
// transaction. What is written is spelled out, for a server that replicates by statement.
func lift(ctx context.Context, conn *sql.Conn, table string) error {
	f, err := fenceOf(table)
	if err != nil {
		return err
	}
	if _, err := conn.ExecContext(ctx, "SET @txlock_autocommit = @@autocommit, autocommit = 1"); err != nil {
		return err
	}
	defer func() {
		clean, cancel := detached(ctx)
		defer cancel()
		if _, failed := conn.ExecContext(clean, "DO RELEASE_LOCK('"+turnOfLift+"')"); failed != nil {
			destroy(conn)
			return
		}
		if _, failed := conn.ExecContext(clean, "SET autocommit = @txlock_autocommit, @txlock_autocommit = NULL"); failed != nil {
			destroy(conn)
		}
	}()
	turn, err := firstColumn(ctx, conn, fmt.Sprintf("SELECT GET_LOCK('%s', %d)", turnOfLift, int(cleanUpTimeout.Seconds())))
	if err != nil {
		return err
	}
	if len(turn) != 1 || turn[0] != "1" {
		return fmt.Errorf("%w: another session numbers it, and holds the server's lock %s", errNoRun, turnOfLift)
	}
	run, err := firstColumn(ctx, conn, "SELECT CONCAT("+f.run()+", '')")
	if err != nil {
		return f.explain(table, err)
	}
	if len(run) == 1 && run[0] != "" { // it has been numbered meanwhile
		return nil
	}
	return f.explain(table, f.number(ctx, conn))
}

func (f fence) number(ctx context.Context, conn *sql.Conn) error {
	drawn, err := conn.ExecContext(ctx, "INSERT INTO "+f.epochs+" VALUES ()")
	if err != nil {
		return err
	}
	epoch, err := drawn.LastInsertId()
	if err != nil {
		return err
	}
	start, err := firstColumn(ctx, conn, "SELECT CONCAT(@@server_id, ', ', UUID_SHORT())")
	if err != nil {
		return err
	}
	if len(start) != 1 {
		return errNoRun
	}
	_, err = conn.ExecContext(ctx, fmt.Sprintf("REPLACE INTO %s (epoch, server, start) VALUES (%d, %s)", f.runs, epoch, start[0]))
	return err
}

func (f fence) explain(table string, err error) error {
	switch number(err) {
	case noSuchTable:
		return locktable.NoFence(table, err)
	case refusedByPlugin:
		return fmt.Errorf("there are no tokens on a member of a replication group, which takes no MEMORY table: lock without WithFencing: %w", err)
	}
	return err
}

// lift numbers the server's run, which settle reads then.
func (s *session) lift(ctx context.Context, table string) error {
	if s.owned != nil {
		s.owned.fence = ""
	}
	return lift(ctx, s.conn, table)
}

// readRun makes tokens possible in a session that began without them. It does not lift in its own
// transaction, and the pool may be waiting for this very session.
func (s *session) readRun(ctx context.Context, table string) error {
	if table == "" || table == s.fence {
		return nil
	}
	f, err := fenceOf(table)
	if err != nil {
		return err
	}
	clean, cancel := detached(ctx)
	defer cancel()
	if s.owned != nil {
		s.owned.fence = "" // until it is known what the variable holds
	}
	for range 2 {
		if err := s.exec(clean, "SET "+f.read()); err != nil {
			return f.explain(table, err)
		}
		run, err := firstColumn(clean, s.statements(), "SELECT @txlock_run IS NULL")
		if err != nil {
			return err
		}
		if len(run) == 1 && run[0] == "0" {
			s.fence = table
			if s.owned != nil {
				s.owned.fence = table
			}
			return nil
		}
		brief, cancel := context.WithTimeout(ctx, liftPatience)
		err = s.driver.withConn(brief, func(conn *sql.Conn) error { return lift(brief, conn, table) })
		cancel()
		if err != nil {
			return err
		}
	}
	return errNoRun
}
