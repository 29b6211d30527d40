package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// fence is what tokens are drawn from. A run of the server lasts until it restarts, or until a
// replica takes over. An epoch is the number of a run. A token is an epoch and a count in its run,
// which comes from UUID_SHORT(), a counter in the server's memory that every call increases. The
// statement that locks the rows reads both, row by row as they are locked, and writes nothing.
//
// The counter begins anew with the server. So runs, a table in memory that a restart empties, has
// the epoch of this run and the count at which it began. Its row names the server: on a replica
// that takes over, the row is another server's. The primary's row is good only while no other
// server has taken over and replicated a row with a higher epoch. Without a good row no token
// comes. The next holder then draws an epoch from epochs, an ordinary table. That is committed, and
// replicated as far as the server waits for replicas, before the first token is made of it.
//
// Each run has a row of its own in runs, so that the key of a row is new everywhere. A server that
// has restarted does not know which rows its replicas still have: one with a key of theirs would
// stop their replication (error 1062).
//
// The session reads only tables in memory: a plain SELECT of an InnoDB table would take the
// transaction's snapshot before the lock.
type fence struct{ epochs, runs string }

// fenceOf derives the quoted names from the lock table's.
func fenceOf(table string) (fence, error) {
	epochs, err := sqltext.Beside(table, locktable.Epochs)
	runs, _ := sqltext.Beside(table, locktable.Runs)
	return fence{epochs: epochs, runs: runs}, err
}

// run is the epoch of the server's run and the count at which it began, or NULL.
func (f fence) run() string {
	return "(SELECT CONCAT(epoch, ' ', start) FROM " + f.runs + " WHERE server = @@server_id " +
		"AND UUID_SHORT() - CAST(start AS DECIMAL(20)) BETWEEN 1 AND " + strconv.Itoa(fencing.Spent-1) + " " +
		"AND epoch = (SELECT MAX(epoch) FROM " + f.runs + "))"
}

// read is an assignment to a variable of the session, which cannot outlive the run that it holds.
func (f fence) read() string { return "@txlock_run = " + f.run() }

// counted is a column that holds another, and what a token is made of. It is NULL without a run.
// With the last row, further tokens are drawn: BENCHMARK calls the function so often, and returns
// 0.
func counted(column string, tokens int, isLast string) string {
	further := ""
	if tokens > 1 {
		further = fmt.Sprintf(", LEFT(IF(%s, BENCHMARK(%d, UUID_SHORT()), 0), 0)", isLast, tokens-1)
	}
	return "CONCAT(" + column + ", ' ', UUID_SHORT(), ' ', @txlock_run" + further + ")"
}

// drawnSQL is the token that tokenOf makes of one row of counted, and whether it makes one.
func drawnSQL(row string) (token, whether string) {
	field := func(n int) string {
		return fmt.Sprintf("CAST(SUBSTRING_INDEX(SUBSTRING_INDEX(%s, ' ', %d), ' ', -1) AS DECIMAL(20))", row, n)
	}
	count := field(2) + " - " + field(4)
	return fmt.Sprintf("%s * %d + %s", field(3), 1<<fencing.CountBits, count),
		fmt.Sprintf("%s BETWEEN 1 AND %d", count, fencing.Spent-1)
}

// tokenOf takes the columns of counted apart. The row that was locked last was counted last.
func tokenOf(rows []string) (columns []string, token int64, err error) {
	for _, row := range rows {
		fields := strings.Fields(row)
		if len(fields) != 4 {
			return nil, 0, fencing.ErrNoRun
		}
		var numbers [3]uint64
		for i, field := range fields[1:] {
			if numbers[i], err = strconv.ParseUint(field, 10, 64); err != nil {
				return nil, 0, err
			}
		}
		count, epoch, start := numbers[0], numbers[1], numbers[2]
		if count <= start { // the row is another server's, brought here by a dump
			return nil, 0, fencing.ErrNoRun
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

// fenceLock is a GET_LOCK of the server's: of several sessions that find no run, one numbers it.
const fenceLock = "txlock_fence"

// numberRun gives the server's run an epoch. Each statement commits by itself: with GTIDs, a
// transaction must not write a table in memory. Written values are spelled out, for statement-based
// replication.
func numberRun(ctx context.Context, conn *sql.Conn, table string) error {
	f, err := fenceOf(table)
	if err != nil {
		return err
	}
	return client.Setting(ctx, conn, func() error {
		defer func() {
			clean, cancel := interrupt.Detached(ctx)
			defer cancel()
			if _, failed := conn.ExecContext(clean, "DO RELEASE_LOCK('"+fenceLock+"')"); failed != nil {
				server.Destroy(conn)
			}
		}()
		wait := fmt.Sprintf("SELECT GET_LOCK('%s', %d)", fenceLock, int(interrupt.CleanUp.Seconds()))
		granted, err := server.Column(ctx, conn, wait)
		if err != nil {
			return err
		}
		if len(granted) != 1 || granted[0] != "1" {
			return fmt.Errorf("%w: another session numbers it, and holds the server's lock %s", fencing.ErrNoRun,
				fenceLock)
		}
		run, err := server.Column(ctx, conn, "SELECT CONCAT("+f.run()+", '')")
		if err != nil {
			return f.explain(table, err)
		}
		if len(run) == 1 && run[0] != "" { // another session has numbered it meanwhile
			return nil
		}
		return f.explain(table, f.drawEpoch(ctx, conn))
	}, "autocommit", "1")
}

func (f fence) drawEpoch(ctx context.Context, conn *sql.Conn) error {
	drawn, err := conn.ExecContext(ctx, "INSERT INTO "+f.epochs+" VALUES ()")
	if err != nil {
		return err
	}
	epoch, err := drawn.LastInsertId()
	if err != nil {
		return err
	}
	start, err := server.Column(ctx, conn, "SELECT CONCAT(@@server_id, ', ', UUID_SHORT())")
	if err != nil {
		return err
	}
	if len(start) != 1 {
		return fencing.ErrNoRun
	}
	_, err = conn.ExecContext(ctx,
		fmt.Sprintf("REPLACE INTO %s (epoch, server, start) VALUES (%d, %s)", f.runs, epoch, start[0]))
	return err
}

func (f fence) explain(table string, err error) error {
	switch server.Number(err) {
	case server.NoSuchTable:
		return locktable.NoFence(table, err)
	case server.RefusedByPlugin:
		return fmt.Errorf("there are no tokens on a member of a replication group, which takes no MEMORY table: "+
			"lock without WithFencing: %w", err)
	}
	return err
}

// explainTable is failed, unless the table that it misses is one of the fence's.
func (s *session) explainTable(ctx context.Context, table string, failed error) error {
	f, err := fenceOf(table)
	if err == nil {
		_, err = server.Column(ctx, s.statements(), "SELECT "+f.run())
	}
	if err != nil {
		return f.explain(table, err)
	}
	return failed
}

// numberRun gives the server's run an epoch. The next begin reads it.
func (s *session) numberRun(ctx context.Context, table string) error {
	if s.conn.Owned != nil {
		s.conn.Owned.Fence = ""
	}
	return numberRun(ctx, s.conn.Conn, table)
}

// readRun makes tokens possible in a session that began without them. Another connection numbers
// the run, if the pool gives one in time.
func (s *session) readRun(ctx context.Context, table string) error {
	if table == "" || table == s.fence {
		return nil
	}
	f, err := fenceOf(table)
	if err != nil {
		return err
	}
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	if s.conn.Owned != nil {
		s.conn.Owned.Fence = "" // until it is known what the variable holds
	}
	for range 2 {
		if err := s.exec(clean, "SET "+f.read()); err != nil {
			return f.explain(table, err)
		}
		run, err := server.Column(clean, s.statements(), "SELECT @txlock_run IS NULL")
		if err != nil {
			return err
		}
		if len(run) == 1 && run[0] == "0" {
			s.fence = table
			if s.conn.Owned != nil {
				s.conn.Owned.Fence = table
			}
			return nil
		}
		brief, cancel := context.WithTimeout(ctx, fencing.SecondConn)
		err = s.driver.pool.With(brief, func(conn *sql.Conn) error { return numberRun(brief, conn, table) })
		cancel()
		if err != nil {
			return err
		}
	}
	return fencing.ErrNoRun
}
