package mysql

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/internal/label"
)

// On a node of Galera a row lock excludes the sessions of that node. To exclude others, the rows
// are then changed, and the change is sent to all nodes at once, as a fragment of the transaction
// (streaming replication). Of two fragments for one row, the cluster takes the first, and rolls the
// other transaction back. Every other node applies it, and so has the row locked until the
// transaction ends. What is read behind a fragment is not older than the lock.

// keptInCluster refuses what does not reach the other nodes.
func keptInCluster(request dialects.Request) error {
	if request.Callers || request.AnyOne != "" || request.Shared {
		return fmt.Errorf("%w: this is a node of a Galera cluster, where a semaphore, a shared lock, and a lock of "+
			"rows of your own do not reach the other nodes: use a key", dialects.ErrUnsafeEngine)
	}
	return nil
}

// overtakenBy turns the end of a transaction for another's sake, which had its first lock to lose
// alone, into a wait that goes on. A try goes on ten times: who was first may have ended.
func overtakenBy(err error, request dialects.Request, times int) error {
	if isOfWork(err) || !server.IsDeadlock(err) {
		return err
	}
	err = fmt.Errorf("%w: a session on another node of the cluster was first: %v", dialects.ErrNotAcquired, err)
	if request.Try && times == 10 {
		return err
	}
	time.Sleep(rand.N(3 * time.Millisecond)) // so that they do not meet again at once
	return fmt.Errorf("%w: %w", errWaitOn, err)
}

// certifySQL counts in a column of the rows of request, and has the cluster take the change at
// once. It changes no row in a session that keeps its writes to itself: with wsrep_on = OFF, and
// with binlog_format = STATEMENT, where MariaDB 10.11 sends no fragment at REPEATABLE READ. By the
// index: else many numbers wait for others' rows.
func certifySQL(request dialects.Request, comment string, values []dialects.Value) string {
	table, _ := server.QuoteTable(request.Table)
	count := "taken"
	if request.Slots == 0 { // of an election, whose term is in another row
		count = "term"
	}
	return fmt.Sprintf("%sUPDATE %s%s FORCE INDEX (PRIMARY) SET %s = %[4]s + 1 WHERE %s IN (%s) AND @@wsrep_on AND "+
		"'STATEMENT' NOT IN (@@binlog_format, @@wsrep_forced_binlog_format) ORDER BY %[5]s",
		server.OnMariaDB("wsrep_trx_fragment_unit='rows'", "wsrep_trx_fragment_size=1"), comment, table, count,
		request.Column, numbersOf(values))
}

// certify makes a lock of rows one of the cluster. Who has nothing else to lose may be interrupted.
func (s *session) certify(ctx context.Context, request dialects.Request) error {
	if s.joined {
		ctx = context.WithoutCancel(ctx)
	}
	return s.driver.Pool.Await(ctx, false, s.patience, s.cut, func(ctx context.Context, tag string) error {
		comment := server.Comment(label.Begin+request.Label, tag)
		changed, err := s.Conn.Run(ctx, certifySQL(request, comment, request.Values))
		switch number := server.Number(err); {
		case err == nil && changed != int64(len(request.Values)),
			number == server.WrongValue, number == server.WrongArguments:
			return fmt.Errorf("%w: the session does not send its change to the other nodes of the Galera cluster: its "+
				"wsrep_on must be ON, its binlog_format ROW, and a transaction with fragments of another "+
				"wsrep_trx_fragment_unit must take the lock first: %w", dialects.ErrUnsafeEngine,
				cmp.Or(err, errors.New("no row was changed")))
		case number == server.UnknownColumn:
			return fmt.Errorf("%w: a lock on Galera changes a column that an older version has not made: ALTER TABLE "+
				"%s ADD COLUMN taken BIGINT NOT NULL DEFAULT 0: %w", dialects.ErrNotInstalled, request.Table, err)
		}
		return err
	})
}

// certifyAndDraw makes the lock of the rows of request one of the cluster, and draws its token.
//
// UUID_SHORT() would count on one node alone. So all nodes count in the start of the epoch's row,
// which has the server 0. It is committed on another connection, because the transaction of a Lock
// is rolled back. Behind that the session sends another fragment: so it had the lock when the count
// was committed, and whoever has it next draws a later one.
//
// A Lock is certified until the answer comes within an eighth of the lease. What a node has said
// may be old when it comes, as from one that was stopped in between: the others drop a node
// evs.suspect_timeout after its last sign of life, and give the lock to somebody else. The first
// heartbeat would tell only after the lease.
func (s *session) certifyAndDraw(ctx context.Context, request dialects.Request) (token int64, err error) {
	if request.Fence != "" {
		if err = s.certify(ctx, request); err == nil {
			token, err = s.driver.drawInCluster(ctx, fenceOf(request.Fence))
			err = fenceOf(request.Fence).explain(request.Fence, err)
		}
	}
	for tries := 1; err == nil; tries++ {
		sent := time.Now()
		err = s.certify(ctx, request)
		took := time.Since(sent)
		switch {
		case request.Work != nil || s.joined || took <= request.Lease/8:
			return token, err
		case err == nil && tries == 3:
			err = fmt.Errorf("%w: the Galera cluster takes %v for a change, too long for a lease of %v",
				dialects.ErrNotAcquired, took, request.Lease)
		}
	}
	return token, err
}

// drawInCluster commits a count, and is its token. Of nodes that count at once all but one repeat.
func (d *Driver) drawInCluster(ctx context.Context, f fence) (token int64, err error) {
	d.drawing.Lock()
	defer d.drawing.Unlock()
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), fencing.SecondConn)
	defer cancel()
	for again := true; again; again = server.IsDeadlock(err) && brief.Err() == nil {
		err = d.Pool.With(brief, func(conn client.Conn) error {
			row, err := conn.Ask(brief, "START TRANSACTION", "UPDATE "+f.runs+
				" SET start = start + 1 WHERE server = 0 ORDER BY epoch DESC LIMIT 1", "SELECT CONCAT_WS(' ', epoch, "+
				"server, start) FROM "+f.runs+" ORDER BY epoch DESC LIMIT 1", "COMMIT")
			if err != nil {
				return err
			}
			var epoch, id, count uint64
			if _, err = fmt.Sscan(strings.Join(row, ""), &epoch, &id, &count); err != nil || id != 0 {
				return fencing.ErrNoRun
			}
			token, err = fencing.Token(epoch, count)
			return err
		})
	}
	if server.Broken(err) || err != nil && brief.Err() != nil { // not of the session that locks
		err = fmt.Errorf("%w: %v", fencing.ErrNoRun, err)
	}
	return token, err
}
