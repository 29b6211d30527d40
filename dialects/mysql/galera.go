package mysql

import (
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
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// On a node of Galera a row lock excludes the sessions of that node. To exclude others, the rows
// are then changed, and the change is sent to all nodes at once, as a fragment of the transaction
// (streaming replication). Of two fragments for one row, the cluster takes the first in its order,
// and rolls the other transaction back. Every other node applies the fragment, and so has the row
// locked until the transaction ends. A fragment is taken only behind all that came before it: what
// is read behind it is not older than the lock.

const (
	// triesOvertaken is how often a try goes on that was overtaken: by one who has the lock, and
	// then the row is locked here as well in a moment, or by the end of its last holder.
	triesOvertaken = 10
	// galeraWait is how long a joined wait lasts at a time: KILL QUERY ends the transaction (error
	// 1213), so nothing but a limit on the server ends the wait.
	galeraWait = 250 * time.Millisecond
	// soon is the part of a lease in which an answer has to come: a holder is told within a lease
	// of it, and the others drop a node evs.suspect_timeout after its last sign of life.
	soon = 8
)

// lockInCluster is lock. A joined wait gives up after the limit of the place: no node sees a circle
// of sessions that wait on different nodes.
func (d *Driver) lockInCluster(ctx context.Context, at place, request dialects.Request) (got dialects.Grant,
	err error,
) {
	if request.Callers || request.AnyOne != "" || request.Shared {
		return got, fmt.Errorf("%w: this is a node of a Galera cluster, where a semaphore, a shared lock, and a lock "+
			"of rows of your own do not reach the other nodes: use a key", dialects.ErrUnsafeEngine)
	}
	alone, slice, wait := request, at, ctx
	alone.Fence, alone.Work = "", nil // behind the change
	for begun, waits := time.Now(), true; waits; waits = at.joined && errors.Is(err, errWaitOn) {
		switch {
		case at.joined && err != nil && ended(ctx):
			return got, fmt.Errorf("%w: another session holds it", dialects.ErrNotAcquired)
		case at.limit > 0 && time.Since(begun) > at.limit:
			return got, fmt.Errorf("%w: it has waited for %v with locks of its own, and no node of Galera sees "+
				"whether another waits for those", dialects.ErrNotAcquired, at.limit)
		case at.joined:
			slice.limit, wait = galeraWait, context.WithoutCancel(ctx)
			if deadline, ok := ctx.Deadline(); ok {
				slice.limit = max(min(galeraWait, time.Until(deadline)), time.Millisecond)
			}
		}
		got, err = d.lockHere(wait, slice, alone)
	}
	if err == nil && request.Ours {
		got.Token, err = d.certifyAndDraw(ctx, at, request)
		err = server.Classify(err, request)
	}
	if err == nil && request.Work.Looks() {
		got.Answer, err = run(ctx, at.Link, *request.Work.Look)
	}
	return got, err
}

// overtakenBy turns the end of a transaction for another's sake into a wait that goes on, where
// that has nothing but its first lock to lose: so the error must be a deadlock to nobody. That of a
// statement of the work's is left alone. A try goes on some times.
func overtakenBy(err error, request dialects.Request, times int) error {
	if work := (*dialects.StatementError)(nil); errors.As(err, &work) ||
		!server.IsDeadlock(err) && !errors.Is(err, errOvertaken) {
		return err
	}
	if request.Try && times == triesOvertaken {
		return fmt.Errorf("%w: %v", errOvertaken, err)
	}
	breather()
	return fmt.Errorf("%w: %w: %v", errWaitOn, errOvertaken, err)
}

// errOvertaken occurs when a session has locked a row on its node, and another node was first.
var errOvertaken = fmt.Errorf("%w: a session on another node of the cluster was first", dialects.ErrNotAcquired)

// breather keeps sessions that were overtaken from meeting again at once.
func breather() { time.Sleep(rand.N(3 * time.Millisecond)) }

// unsure is the number of an error of COMMIT that does not say that the transaction was rolled
// back. SeveralRows is of a statement in front of it.
func unsure(number uint16) bool {
	return number != server.SeveralRows && number != server.LockDeadlock && number != server.RowChanged
}

// certifySQL counts in a column of the rows of request, and has the cluster take the change at
// once. In a session that keeps its writes to itself it changes no row: with wsrep_on = OFF, and
// with binlog_format = STATEMENT, where MariaDB 10.11 sends no fragment at REPEATABLE READ, and
// says nothing of it. By the index: else many numbers wait for others' rows.
func certifySQL(request dialects.Request, comment string, values []dialects.Value) (string, error) {
	table, err := sqltext.QuoteTable(request.Table)
	count := "taken"
	if request.Slots == 0 { // of an election, whose term is in another row
		count = "term"
	}
	return fmt.Sprintf("%sUPDATE %s%s FORCE INDEX (PRIMARY) SET %s = %[4]s + 1 WHERE %s IN (%s) AND @@wsrep_on AND "+
		"'STATEMENT' NOT IN (@@binlog_format, @@wsrep_forced_binlog_format) ORDER BY %[5]s",
		sqltext.OnMariaDB("wsrep_trx_fragment_unit='rows'", "wsrep_trx_fragment_size=1"), comment, table, count,
		request.Column, numbersOf(values)), err
}

// certify makes the lock of the rows of request one of the cluster. A session that has nothing to
// lose may be interrupted, which rolls it back.
func (d *Driver) certify(ctx context.Context, at place, request dialects.Request) error {
	tag := ""
	if !at.joined && ctx.Done() != nil {
		tag = client.NewTag()
	} else {
		ctx = context.WithoutCancel(ctx)
	}
	query, err := certifySQL(request, sqltext.Comment(labelOf(request), tag), request.Values)
	if err != nil {
		return err
	}
	return d.pool.Await(ctx, false, tag, at.interruptLimit(), at.cut, func(ctx context.Context) error {
		result, err := at.ExecContext(ctx, query)
		if err != nil {
			return certified(err, request)
		}
		if changed, err := result.RowsAffected(); err != nil || changed != int64(len(request.Values)) {
			return errors.Join(err, fmt.Errorf("%w: of the cluster's %d rows the session has changed %d: "+
				"its wsrep_on must be ON, and its binlog_format ROW, on this node of Galera", dialects.ErrUnsafeEngine,
				len(request.Values), changed))
		}
		return nil
	})
}

// certifySoon certifies until the answer comes soon. What a node has said may be old when it comes,
// as from one that was stopped in between: the others may have dropped it, and given the lock to
// somebody else. The first heartbeat of a Lock would tell only after its lease.
func (d *Driver) certifySoon(ctx context.Context, at place, request dialects.Request) error {
	for tries := 1; ; tries++ {
		sent := time.Now()
		err := d.certify(ctx, at, request)
		took := time.Since(sent)
		if err != nil || request.Work != nil || at.joined || took <= request.Lease/soon {
			return err
		}
		if tries == 3 {
			return fmt.Errorf("%w: the Galera cluster takes %v for a change, too long for a lease of %v",
				dialects.ErrNotAcquired, took, request.Lease)
		}
	}
}

// certified is an error of the change, with what it means.
func certified(err error, request dialects.Request) error {
	switch server.Number(err) {
	case server.WrongValue:
		return fmt.Errorf("%w: the session does not send its changes to the other nodes of the Galera cluster: its "+
			"wsrep_on must be ON: %w", dialects.ErrUnsafeEngine, err)
	case server.WrongArguments:
		return fmt.Errorf("%w: the transaction has sent fragments of another wsrep_trx_fragment_unit to the Galera "+
			"cluster, and cannot change it: take the lock first: %w", dialects.ErrUnsafeEngine, err)
	case server.UnknownColumn:
		return fmt.Errorf("%w: a lock on Galera changes a column that an older version has not made: ALTER TABLE %s "+
			"ADD COLUMN taken BIGINT NOT NULL DEFAULT 0: %w", dialects.ErrNotInstalled, request.Table, err)
	}
	return err
}

// certifyAndDraw makes the lock of the rows of request one of the cluster, and draws its token.
//
// UUID_SHORT() would count on one node alone. So a node counts in a row of its own, in the table of
// runs, whose other rows have positive epochs. A count is larger than those of all nodes, and no
// other node's. It is committed on another connection while the session has the lock, because the
// transaction of a Lock is rolled back. Behind that the session sends another fragment: so it had
// the lock when the count was committed, and whoever has it next has a node that has applied the
// count. The epoch, one for all nodes, keeps tokens above those of a server that was none before.
// Its row has the server 0, and a start that is good for no server with counts of its own.
func (d *Driver) certifyAndDraw(ctx context.Context, at place, request dialects.Request) (token int64, err error) {
	if request.Fence == "" {
		return 0, d.certifySoon(ctx, at, request)
	}
	if err := d.certify(ctx, at, request); err != nil {
		return 0, err
	}
	f := fenceOf(request.Fence)
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), fencing.SecondConn)
	defer cancel()
	err = d.pool.With(brief, func(conn client.Conn) (err error) {
		for tries := 1; ; tries++ {
			token, err = f.commitCount(brief, client.Link{Querier: conn})
			if !server.IsDeadlock(err) || tries == 5 {
				return err
			}
			breather()
		}
	})
	if err != nil {
		return 0, f.explain(request.Fence, err)
	}
	return token, d.certifySoon(ctx, at, request)
}

// commitCount commits a count, and returns its token. The row of the node is locked before the
// others are read. Where two nodes have the same offset, one of them has to do so again.
func (f fence) commitCount(ctx context.Context, link client.Link) (int64, error) {
	line, err := link.Ask(ctx, "START TRANSACTION", "INSERT INTO "+f.runs+" (server, epoch, start) "+
		"VALUES (0, -@@auto_increment_offset, 1) ON DUPLICATE KEY UPDATE start = start + 1",
		"SELECT CONCAT_WS(' ', epoch, server, (SELECT MAX(start) FROM "+f.runs+" WHERE epoch < 0), "+
			"@@auto_increment_offset, @@auto_increment_increment) FROM "+f.runs+
			" WHERE epoch > 0 ORDER BY epoch DESC LIMIT 1")
	if err != nil {
		return 0, err
	}
	var epoch, id, last, offset, step uint64
	if _, err = fmt.Sscan(strings.Join(line, ""), &epoch, &id, &last, &offset, &step); err != nil || id != 0 {
		return 0, fencing.ErrNoRun
	}
	last++
	last += (step + offset%step - last%step) % step // where this node's numbers are
	_, err = link.Run(ctx, fmt.Sprintf("UPDATE %s SET start = %d WHERE epoch = -@@auto_increment_offset", f.runs, last),
		"COMMIT")
	if err != nil {
		return 0, err
	}
	return fencing.Token(epoch, last)
}

// numberCluster begins an epoch, unless the last one is of a cluster. Two that are begun at once do
// no harm: the later one counts.
func (f fence) numberCluster(ctx context.Context, link client.Link) error {
	last, err := link.Ask(ctx, "SELECT server FROM "+f.runs+" WHERE epoch > 0 ORDER BY epoch DESC LIMIT 1")
	if err == nil && (len(last) == 0 || last[0] != "0") {
		_, err = link.Run(ctx, f.newEpoch("0")...)
	}
	return err
}
