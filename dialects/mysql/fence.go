package mysql

import (
	"context"
	"errors"
	"fmt"

	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/internal/locktable"
)

// fence is what tokens are drawn from. A token is an epoch, and a count in that epoch, which comes
// from UUID_SHORT(), a counter in the server's memory that every call increases. The statement that
// locks the rows draws a count and reads the epoch behind the last of them, and writes nothing.
//
// runs has a row for each epoch: the server's number, and the count at which the epoch began. The
// last row alone is good, on its own server, until its counts are spent. Else the holder draws an
// epoch from epochs, which is committed, and replicated as far as the server waits for replicas,
// before the first token is made of it. A server that takes over finds another's row; one that
// comes back finds a later one.
//
// A server that restarts counts anew, from the second of its start times 2^24 on (MySQL manual,
// section 14.23), and finds its own row. An epoch begins behind the second of the start, and ends
// with the counts of one second: a start in another finds it outdated. After one in the same
// second, by a clock that was set back, counts are below the epoch's, which skips thousands first.
type fence struct{ epochs, runs string }

const (
	second  = 1 << 24
	skipped = 1 << 14 // counts; with many more, the epochs of a server's tables would spend each other's
)

func fenceOf(table string) fence {
	beside, _ := server.Beside(table)
	return fence{epochs: beside(locktable.Epochs), runs: beside(locktable.Runs)}
}

// counted is a column with another, a count, and, if it is this server's, the last epoch with its
// first count. In a UNION it stands behind the rows that are locked: a statement reads all tables
// as they were at its first plain read, which so comes when the last row is locked.
func (f fence) counted(column string) string {
	return "CONCAT_WS(' ', " + column + ", UUID_SHORT(), (SELECT IF(server = @@server_id, CONCAT(epoch, ' ', start), " +
		"NULL) FROM " + f.runs + " ORDER BY epoch DESC LIMIT 1))"
}

// tokenOf makes a token of what counted has behind the other column.
func tokenOf(row string) (int64, error) {
	var other string
	var count, epoch, start uint64
	_, err := fmt.Sscanf(row, "%s %d %d %d", &other, &count, &epoch, &start)
	if err != nil || count <= start || count-start >= second-skipped-start%second {
		return 0, fencing.ErrNoRun
	}
	return fencing.Token(epoch, count-start)
}

// numberRun begins an epoch, unless the last is good. Of several sessions that find none, one does:
// the one with a lock of the server's, which the end of its connection releases.
func (d *Driver) numberRun(ctx context.Context, table string) error {
	f := fenceOf(table)
	brief, cancel := context.WithTimeout(ctx, fencing.SecondConn)
	defer cancel()
	return f.explain(table, d.Pool.With(brief, func(conn client.Conn) error {
		defer conn.Destroy()
		granted, err := conn.Ask(ctx, "SET autocommit = 1", "SELECT GET_LOCK('txlock_fence', 5)")
		switch {
		case err != nil:
			return err
		case granted[0] != "1":
			return fmt.Errorf("%w: another session numbers it, by the server's lock txlock_fence", fencing.ErrNoRun)
		case d.Pool.Galera.Load():
			last, err := conn.Ask(ctx, "SELECT server FROM "+f.runs+" ORDER BY epoch DESC LIMIT 1")
			if err == nil && (len(last) == 0 || last[0] != "0") { // two begun at once do no harm: the later one counts
				_, err = conn.Run(ctx, f.newEpoch("0, 0")...)
			}
			return err
		}
		row, err := conn.Ask(ctx, "SELECT "+f.counted("'token'"))
		if err == nil {
			_, err = tokenOf(row[0])
		}
		if !errors.Is(err, fencing.ErrNoRun) { // another has begun one meanwhile
			return err
		}
		return f.drawEpoch(ctx, conn)
	}))
}

// drawEpoch writes the new epoch's row twice: from the first time on, the last is not good for
// anybody. It waits until the second in which the server was started is over, skips counts, and
// begins no epoch where as few are left in a second.
func (f fence) drawEpoch(ctx context.Context, conn client.Conn) error {
	skip := fmt.Sprintf("DO IF(UUID_SHORT() DIV %d %% %d = UNIX_TIMESTAMP(), SLEEP(1), 0), BENCHMARK(%d, UUID_SHORT())",
		second, 1<<32, skipped)
	begin := fmt.Sprintf("REPLACE INTO %s (epoch, server, start) SELECT LAST_INSERT_ID(), @@server_id, start FROM "+
		"(SELECT UUID_SHORT() AS start LIMIT 1) AS count WHERE start %% %d BETWEEN %d AND %d", f.runs, second, skipped,
		second-2*skipped)
	_, err := conn.Run(ctx, f.newEpoch("@@server_id, ~0")...) // a start that is good for nobody
	for begun := int64(0); err == nil && begun == 0; {
		begun, err = conn.Run(ctx, skip, begin)
	}
	return err
}

// newEpoch draws an epoch, and writes its row.
func (f fence) newEpoch(serverAndStart string) []string {
	return []string{
		"INSERT INTO " + f.epochs + " VALUES ()",
		"REPLACE INTO " + f.runs + " (epoch, server, start) VALUES (LAST_INSERT_ID(), " + serverAndStart + ")",
	}
}

func (f fence) explain(table string, err error) error {
	if server.Number(err) == server.NoSuchTable {
		err = locktable.NoFence(table, err, f.runs)
	}
	return err
}
