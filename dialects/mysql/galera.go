package mysql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// On a node of Galera a row lock excludes the sessions of that node. To exclude those of the others
// as well, the rows are then changed, and the change is sent to all nodes at once, as a fragment of
// the transaction (streaming replication). Of two fragments for one row, the cluster takes the one
// that comes first in its order, and rolls the other transaction back. Every other node applies the
// fragment, and so has the row locked there until the transaction ends.
//
// A fragment is taken only behind all that came before it in the order, and its node has that
// committed by then. So what is read behind it is not older than the lock.

// errOvertaken occurs when a session has locked a row on its node, and another node was first.
var errOvertaken = fmt.Errorf("%w: a session on another node of the cluster was first", dialects.ErrNotAcquired)

// keepsOnGalera is an error for what a cluster of Galera cannot keep.
func keepsOnGalera(request dialects.Request) error {
	what := ""
	switch {
	case request.AnyOne != "":
		what = "a semaphore"
	case request.Shared:
		what = "a shared lock"
	default:
		return nil
	}
	return fmt.Errorf("%w: this is a node of a Galera cluster, where %s does not reach the other nodes: use a key",
		dialects.ErrUnsafeEngine, what)
}

// certifySQL changes the rows of request, which the session has locked, and has the cluster take
// the change. In a session that keeps its writes to itself it changes none.
func certifySQL(request dialects.Request, comment string) (string, error) {
	table, err := sqltext.QuoteTable(request.Table)
	if err != nil {
		return "", err
	}
	column := "taken"
	if request.Slots == 0 { // of an election, whose term is in another row
		column = "term"
	}
	return sqltext.CertifySQL(table, request.Column, column, comment, request.Values), nil
}

// certify makes the lock of the rows of request one of the cluster. A session that has nothing to
// lose may be interrupted, which rolls it back.
func (d *Driver) certify(ctx context.Context, at place, request dialects.Request) error {
	tag := ""
	if at.role == owner && ctx.Done() != nil {
		tag = client.NewTag()
	} else {
		ctx = context.WithoutCancel(ctx)
	}
	query, err := certifySQL(request, sqltext.Comment(labelOf(request), tag))
	if err != nil {
		return err
	}
	return d.pool.Await(ctx, false, tag, at.interruptible(), at.cut, func(ctx context.Context) error {
		result, err := at.ExecContext(ctx, query)
		if err != nil {
			return certified(err, request)
		}
		if changed, err := result.RowsAffected(); err != nil || changed != int64(len(request.Values)) {
			return errors.Join(err, fmt.Errorf("%w: of the cluster's %d rows the session has changed %d: "+
				"its wsrep_on must be ON, and its binlog_format ROW, on this node of Galera", dialects.ErrUnsafeEngine,
				len(request.Values), changed))
		}
		if at.beat != nil {
			one := request
			one.Values = one.Values[:1]
			*at.beat, err = certifySQL(one, pingMark)
		}
		return err
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
		if err != nil || request.Work || at.role != owner || took <= request.Lease/soon {
			return err
		}
		if tries == 3 {
			return fmt.Errorf("%w: the Galera cluster takes %v for a change, too long for a lease of %v",
				dialects.ErrNotAcquired, took, request.Lease)
		}
	}
}

// soon is the part of a lease in which an answer has to come: a holder is told within a lease of
// it, and the others drop a node evs.suspect_timeout after its last sign of life.
const soon = 8

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

// overtaken turns the end of a transaction for another's sake into errOvertaken, where that has
// nothing but its first lock to lose. So the error must be a deadlock to nobody. That of a
// statement of the work's is left alone.
func (d *Driver) overtaken(err error) error {
	if work := (*dialects.StatementError)(nil); !d.pool.Galera() || !server.IsDeadlock(err) || errors.As(err, &work) {
		return err
	}
	return fmt.Errorf("%w: %v", errOvertaken, err)
}

// triesOvertaken is how often a try goes on that was overtaken: by one who has the lock, and then
// the row is locked here as well in a moment, or by the end of its last holder.
const triesOvertaken = 10

// breather keeps sessions that were overtaken from meeting again at once.
func breather() { time.Sleep(rand.N(3 * time.Millisecond)) }

// galeraTry is how long a wait in a transaction lasts at a time that has more to lose than the
// lock: KILL QUERY ends the transaction there (error 1213), so nothing but a limit on the server
// ends the wait.
const galeraTry = 250 * time.Millisecond

// lockInTries waits for rows in a transaction that has more to lose. It gives up after the patience
// of the place: no node sees a circle of sessions that wait on different nodes.
func (d *Driver) lockInTries(ctx context.Context, at place, request dialects.Request, front []string) (
	got dialects.Grant, err error,
) {
	patience := at.patience
	for start := time.Now(); ; {
		at.patience = galeraTry
		if deadline, ok := ctx.Deadline(); ok {
			at.patience = max(min(galeraTry, time.Until(deadline)), time.Millisecond)
		}
		got, err = d.lock(context.WithoutCancel(ctx), at, request, front)
		switch {
		case !errors.Is(err, errPatience):
			return got, err
		case ended(ctx):
			return got, fmt.Errorf("%w: another session holds it", dialects.ErrNotAcquired)
		case patience > 0 && time.Since(start) > patience:
			return got, fmt.Errorf("%w: it has waited for %v with locks of its own, and no node of Galera sees "+
				"whether another waits for those", dialects.ErrNotAcquired, patience)
		}
	}
}

// provesItself has the cluster take another fragment of the session, for one of the rows that it
// holds. A node that is cut off from the majority cannot.
func (s *session) provesItself(ctx context.Context) error {
	if s.beat == "" {
		return nil
	}
	return s.exec(ctx, s.beat)
}

// unsure is the error of a COMMIT on Galera that does not say that the transaction was rolled back.
// SeveralRows is of a statement in front of it.
func (d *Driver) unsure(err error) bool {
	number := server.Number(err)
	return d.pool.Galera() && number != 0 && number != server.SeveralRows && !server.IsDeadlock(err)
}
