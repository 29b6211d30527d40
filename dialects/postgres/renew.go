package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// A session that has locked a row has a transaction number, and VACUUM keeps all rows that were
// deleted since. So a lock that is held for long is renewed: the session ends its transaction and
// locks the same rows in a new one, in one round trip, and nobody gets in between.
//
// That rests on the turnstiles. Whoever wants one of the rows passes its turnstile first. The
// session keeps the turnstiles for itself, apart from any transaction, from before the end of the
// one until it has the rows in the other. Nobody waits at the rows then: who does has passed a
// turnstile, or the gate, which the renewal must have alone. So the rows are locked at once, and no
// other session can have seen them free.
//
// Rows of a caller's table are not renewed: others may lock them without us.
type renewal struct {
	every  time.Duration // 0: the session is not renewed
	last   time.Time
	locked []dialects.Request
	barred bool // the session holds what cannot be renewed
}

// renewAtLeast is how often a held lock is renewed. With a short lease it is once in two of them.
const (
	renewAtLeast  = time.Minute
	leasesToRenew = 2
)

// note says what the session has locked.
func (r *renewal) note(request dialects.Request) {
	if r.locked == nil && !request.Work {
		r.every, r.last = min(renewAtLeast, leasesToRenew*request.Lease), time.Now()
	}
	r.locked = append(r.locked, request)
	r.barred = r.barred || !request.Ours || len(request.Values) > maxTurnstiles
}

func (r *renewal) possible() bool { return r.every > 0 && !r.barred }

func (r *renewal) due() bool { return r.possible() && time.Since(r.last) >= r.every }

// renew leaves the locks as they are when somebody else shares the gate: the next heartbeat tries
// again. After an error the session still has the turnstiles, so nobody gets in before the owner
// knows of the loss, when the connection is closed. That is what the savepoints are for: without
// them a statement that fails would end the transaction, and with it what the session does not keep
// for itself yet, or no longer.
func (s *session[Tx]) renew(ctx context.Context, behind int) error {
	alone, shown, err := s.passGates(ctx)
	if err != nil || !alone {
		return err
	}
	s.spoiled = true
	if err := exec(ctx, s.conn, pingMark+strconv.Itoa(behind)+"\n"+s.renewScript(shown)); err != nil {
		return fmt.Errorf("the renewal of the lock failed: %w", err)
	}
	s.spoiled = false
	s.renewal.last = time.Now()
	return nil
}

// passGates takes the gates of the tables, all or none. It reads what the session shows.
func (s *session[Tx]) passGates(ctx context.Context) (alone bool, shown string, err error) {
	gates := s.gates("pg_try_advisory_lock")
	s.spoiled = true
	columns, err := s.run(ctx, script{
		{sql: renewSavepoint},
		{sql: "select concat_ws(' ', " + strings.Join(gates, ", ") + ")"},
		{sql: "select extract(epoch from now())::text"},
		{sql: "select " + nameSQL},
	})
	if err != nil {
		return false, "", err
	}
	passed := strings.Fields(columns[1][0])
	if slices.ContainsFunc(passed, func(got string) bool { return !isTrue(got) }) {
		_, err := s.run(ctx, script{
			{sql: "select " + strings.Join(s.gatesAmong(passed), ", ")},
			{sql: "release " + renewSavepoint},
		})
		s.spoiled = err != nil
		return false, "", err
	}
	begun, err := strconv.ParseFloat(columns[2][0], 64)
	return err == nil, label.Since(columns[3][0], begun), err
}

// renewScript is one simple query, so that a pooler in transaction mode, which sees no end of a
// transaction in between, leaves the server's session to this connection. ROLLBACK AND CHAIN begins
// the next transaction in the act of ending the last, so there is no moment outside either.
func (s *session[Tx]) renewScript(shown string) string {
	var keep, pass, lock, unkeep []string
	for _, request := range s.renewal.locked {
		rows, _ := rowsOf(request) // it has been locked by the same text
		each := func(function string) string {
			return "select count(" + passSQL(request, function, "n") + ") from unnest(" +
				literal(arrayOf(turnstilesOf(request))) + "::int[]) n"
		}
		keep = append(keep, each(keeping))
		pass = append(pass, each(passing))
		values := make([]string, len(request.Values))
		for i, value := range request.Values {
			values[i] = value.Text
		}
		// A row that is missing is a division by zero, and that is an end of the session.
		lock = append(lock, "select 1 / (count(*) = "+strconv.Itoa(len(values))+")::int from (select from "+rows.table+
			" where "+rows.column+" in ("+strings.Join(values, ", ")+")"+rows.seeded+" order by "+rows.column+
			rowLock(request)+") locked")
		unkeep = append(unkeep, each(unkeeping))
	}
	set := "select " + setSQL("application_name", literal(shown))
	if !s.settled {
		set += ", " + setSQL("idle_in_transaction_session_timeout", literal(milliseconds(s.lease))) +
			", " + setSQL("client_connection_check_interval", literal(milliseconds(clientCheck)))
	}
	statements := slices.Concat(keep, []string{"rollback and chain", set}, pass, lock, []string{renewSavepoint}, unkeep,
		[]string{"select " + strings.Join(s.gates(unkeeping), ", "), "release " + renewSavepoint})
	return strings.Join(statements, "; ")
}

const renewSavepoint = "savepoint txlock_renew"

// gates calls function for the gate of each table, in one order.
func (s *session[Tx]) gates(function string) (calls []string) {
	for _, request := range s.renewal.locked {
		calls = append(calls, passSQL(request, function, gate)+"::text")
	}
	slices.Sort(calls)
	return slices.Compact(calls)
}

// gatesAmong gives back those that were passed.
func (s *session[Tx]) gatesAmong(passed []string) (calls []string) {
	for i, call := range s.gates(unkeeping) {
		if isTrue(passed[i]) {
			calls = append(calls, call)
		}
	}
	if calls == nil {
		calls = []string{"null"}
	}
	return calls
}
