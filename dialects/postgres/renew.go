package postgres

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/label"
)

// A session that has locked a row has a transaction number, and VACUUM keeps all rows that were
// deleted since. So a lock that is held for long is renewed: the session ends its transaction and
// locks the same rows in a new one, in one round trip. They are rows of our own: others may lock
// those of a caller's table without us.
//
// Nobody gets in between, by the queue locks, which whoever wants a row passes first. The session
// keeps them apart from any transaction, from before the end of the one until it has the rows in
// the other. Who waits at a row has passed a queue lock, so nobody does, and the rows are locked at
// once.
//
// A renewal waits for nobody. It asks for each queue lock in the form in which the session has it,
// by its transaction or by itself: the server counts that up in the memory of the process, and does
// not come to the table in which locks conflict (LockAcquireExtended). They are tries all the same:
// where one ever had to wait, the renewal would fail at once.

// renewAtLeast is how often a held lock is renewed. With a short lease it is once in two of them.
const renewAtLeast, leasesToRenew = time.Minute, 2

// planRenewal chooses a random time, because all sessions of a Locker have their heartbeats in one
// moment. Those that began together, or were stopped together, are renewed a few at a time.
func (s *session[Tx]) planRenewal() {
	every := min(renewAtLeast, leasesToRenew*s.lease)
	s.renewAt = time.Now().Add(every/2 + rand.N(every/2))
}

// renewable tells whether others can be kept out of all that the session holds. That of a leader
// holds two: its seat and its office.
func (s *session[Tx]) renewable() bool {
	return s.mark == "" && !slices.ContainsFunc(s.held, func(r dialects.Request) bool { return !r.Ours })
}

// mustRenew tells whether it is time, and the transaction may have a number: a token takes one.
func (s *session[Tx]) mustRenew() bool {
	if s.renewAt.IsZero() { // it is the first heartbeat
		s.planRenewal()
	}
	return !time.Now().Before(s.renewAt) && s.renewable() && slices.ContainsFunc(s.held,
		func(r dialects.Request) bool { return rowLock(r) != "" || r.Fence != "" })
}

// renew is one simple query: a pooler in transaction mode sees no end of a transaction in between,
// and leaves the server's session to this connection. After an error, as by somebody's cancel, the
// session still has the queue locks, so nobody gets in before the owner knows of the loss, when the
// connection is closed. For that there are the savepoints: without them a statement that fails
// would end the transaction, and with it what the session does not keep for itself yet, or no
// longer.
func (s *session[Tx]) renew(ctx context.Context) error {
	s.renewing = true // unless all goes well, also when the client library panics: see rollback
	const savepoint = "savepoint txlock_renew"
	since := identifier.Qualified("select concat(extract(epoch from now()), ' ', " + nameSQL + ")")
	columns, err := s.Line.Run(ctx, server.Script{{SQL: savepoint, Silent: true, Opens: true}, {SQL: since}})
	if server.State(err) == server.QueryCanceled &&
		s.Line.Exec(ctx, "rollback to "+savepoint+"; release "+savepoint) == nil {
		s.renewing = false // nothing is kept yet: the next heartbeat tries again
		return nil
	}
	if err == nil {
		at, name, _ := strings.Cut(columns[1][0], " ")
		begun, _ := strconv.ParseFloat(at, 64)
		settings := "select " + server.Set("application_name", server.Literal(label.Since(name, begun))) + ", " +
			leaseSQL(server.Literal(milliseconds(s.lease)))
		query := slices.Concat(
			[]string{pingSQL + "\n" + savepoint}, queueLocksSQL(s.held, "pg_try_advisory_lock"),
			[]string{"rollback and chain", settings}, queueLocksSQL(s.held, "pg_try_advisory_xact_lock"),
			relockSQL(s.held),
			[]string{savepoint}, queueLocksSQL(s.held, "pg_advisory_unlock"), []string{"release " + savepoint},
		)
		err = s.Line.Exec(ctx, identifier.Qualified(strings.Join(query, "; ")))
	}
	if err != nil {
		return fmt.Errorf("the renewal of the lock failed: %w", err)
	}
	s.renewing = false // the last statements gave up what the session kept
	s.planRenewal()
	return nil
}

// queueLocksSQL calls function for the queue locks. It fails by a division by zero when one is not
// granted, or was not kept.
func queueLocksSQL(held []dialects.Request, function string) (statements []string) {
	for _, request := range held {
		numbers := server.Literal(server.ArrayOf(queueLocks(request)))
		statements = append(statements, "select 1 / bool_and("+passSQL(request, function, "t")+")::int"+each(numbers))
	}
	return statements
}

// relockSQL locks in a new transaction what was locked in the last. A row that is missing is a
// division by zero. One that somebody has got who passes no queue locks is an error too. Either is
// the end of the session.
func relockSQL(held []dialects.Request) (statements []string) {
	for _, request := range held {
		mode := rowLock(request)
		if mode == "" {
			continue
		}
		t, _ := textsOf(request, own) // it has been locked by the same text
		values, _ := valuesOf(request, t)
		where := strings.ReplaceAll(t.where, "$1", server.Literal(values))
		statements = append(statements, "select 1 / (count(*) = "+strconv.Itoa(len(request.Values))+")::int from "+
			"(select from "+t.table+where+" order by "+t.column+mode+" nowait) locked")
	}
	return statements
}
