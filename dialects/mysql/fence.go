package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// fence is what tokens are drawn from. A token is an epoch, and a count in that epoch, which comes
// from UUID_SHORT(), a counter in the server's memory that every call increases. The statement that
// locks the rows draws a count with each, reads the epoch behind the lock, and writes nothing.
//
// runs has a row for each epoch: the server's number, and the count at which the epoch began. The
// last row alone is good, and only on its own server, until its counts are spent. Where it is not
// good no token comes. The next holder then draws an epoch from epochs. That is committed, and
// replicated as far as the server waits for replicas, before the first token is made of it. A
// server that takes over finds another's row; one that comes back finds a later one.
//
// A server that restarts counts anew, and finds its own row. Its counts begin with the second in
// which it was started, times 2^24 (MySQL manual, section 14.23), and an epoch ends with the counts
// of one such second. So a start in another second finds the row outdated. An epoch begins when the
// second of the start is over, so that there is a start in the same second only if the clock was
// set back. Then the counts are below the epoch's: it begins when thousands were skipped.
type fence struct {
	epochs, runs string
	apart        bool // the run is read behind several rows: see withRun
}

const (
	second = 1 << 24 // counts begin with the number of one
	// skipped is how many counts of a second are skipped before an epoch, and how many are left at
	// its end, for further tokens that are drawn with the last. All tables of a server share the
	// counts: with many more, the epochs of many tables would spend each other's.
	skipped = 1 << 14
)

// fenceOf derives the quoted names from the lock table's.
func fenceOf(table string) (fence, error) {
	epochs, err := sqltext.Beside(table, locktable.Epochs)
	runs, _ := sqltext.Beside(table, locktable.Runs)
	return fence{epochs: epochs, runs: runs}, err
}

// run is the last epoch and the count at which it began, or NULL where that was on another server.
// Where one row is locked, the server reads it behind the lock.
func (f fence) run() string {
	return "(SELECT IF(server = @@server_id, CONCAT(epoch, ' ', start), NULL) FROM " + f.runs +
		" ORDER BY epoch DESC LIMIT 1)"
}

// counted is a column that holds another, the count of a token, and the run.
func (f fence) counted(column string) string {
	run := f.run()
	if f.apart {
		run = "NULL"
	}
	return "CONCAT_WS(' ', " + column + ", UUID_SHORT(), " + run + ")"
}

// runOfAll begins the row that has the run for several others.
const runOfAll = "run"

// withRun adds the run to selects that lock several rows. A statement reads all tables as they were
// at its first plain read, which so comes when the last row is locked.
func (f fence) withRun(selects ...string) []string {
	if !f.apart {
		return selects
	}
	return append(selects, "CONCAT('"+runOfAll+" ', COALESCE("+f.run()+", ''))")
}

// tokenOf takes the columns of counted apart. The row that was locked last was counted last.
func tokenOf(rows []string) (columns []string, token int64, err error) {
	run := ""
	if n := len(rows); n > 0 && strings.HasPrefix(rows[n-1], runOfAll) {
		run, rows = strings.TrimPrefix(rows[n-1], runOfAll), rows[:n-1]
	}
	for _, row := range rows {
		fields := strings.Fields(row + run)
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
		if count <= start || count-start >= second-skipped-start%second {
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

// numberRun begins an epoch, unless the last is good. Each statement commits by itself. Written
// values are spelled out, for statement-based replication.
func (d *Driver) numberRun(ctx context.Context, conn *sql.Conn, table string) error {
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
		if d.pool.Galera() {
			return f.explain(table, f.numberCluster(ctx, conn))
		}
		row, err := server.Column(ctx, conn, "SELECT "+f.counted("0"))
		if err == nil {
			if _, _, err = tokenOf(row); errors.Is(err, fencing.ErrNoRun) { // else another has begun one meanwhile
				err = f.drawEpoch(ctx, conn)
			}
		}
		return f.explain(table, err)
	}, "autocommit", "1")
}

// drawEpoch writes the new epoch's row twice: from the first time on, the last is not good for
// anybody, however far the counts are skipped before the second. It waits until the second in which
// the server was started is over.
func (f fence) drawEpoch(ctx context.Context, conn *sql.Conn) error {
	id, err := number(ctx, conn, "@@server_id")
	if err != nil {
		return err
	}
	begin, err := f.newEpoch(ctx, conn, id)
	if err != nil {
		return err
	}
	over := fmt.Sprintf("DO IF(UUID_SHORT() DIV %d %% %d = UNIX_TIMESTAMP(), SLEEP(1), 0)", second, 1<<32)
	if _, err := conn.ExecContext(ctx, over); err != nil {
		return err
	}
	for {
		if _, err := conn.ExecContext(ctx, fmt.Sprintf("DO BENCHMARK(%d, UUID_SHORT())", skipped)); err != nil {
			return err
		}
		start, err := number(ctx, conn, "UUID_SHORT()")
		if err != nil {
			return err
		}
		if start%second >= skipped && start%second < second-2*skipped { // else few are left in this second
			return begin(start)
		}
	}
}

// newEpoch draws an epoch, and writes its row with a start that is good for nobody. Begin changes
// the start.
func (f fence) newEpoch(ctx context.Context, conn *sql.Conn, id uint64) (begin func(start uint64) error, err error) {
	drawn, err := conn.ExecContext(ctx, "INSERT INTO "+f.epochs+" VALUES ()")
	if err != nil {
		return nil, err
	}
	epoch, err := drawn.LastInsertId()
	if err != nil {
		return nil, err
	}
	begin = func(start uint64) error {
		_, err := conn.ExecContext(ctx,
			fmt.Sprintf("REPLACE INTO %s (epoch, server, start) VALUES (%d, %d, %d)", f.runs, epoch, id, start))
		return err
	}
	return begin, begin(math.MaxUint64)
}

func number(ctx context.Context, conn *sql.Conn, of string) (n uint64, err error) {
	err = conn.QueryRowContext(ctx, "SELECT "+of).Scan(&n)
	return n, err
}

func (f fence) explain(table string, err error) error {
	switch server.Number(err) {
	case server.NoSuchTable:
		return locktable.NoFence(table, err)
	case server.RefusedByPlugin:
		return fmt.Errorf("an earlier version has made %[1]s as a MEMORY table: run Install, or ALTER TABLE %[1]s "+
			"ENGINE=InnoDB: %[2]w", f.runs, err)
	}
	return err
}

// explainTable is failed, unless the table that it misses is one of the fence's.
func (s *session) explainTable(ctx context.Context, table string, failed error) error {
	f, err := fenceOf(table)
	if err == nil {
		_, err = server.Column(ctx, s.conn, "SELECT "+f.run())
	}
	if err != nil {
		return f.explain(table, err)
	}
	return failed
}
