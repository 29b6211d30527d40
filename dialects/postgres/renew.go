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
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// A session that has locked a row has a transaction number, and VACUUM keeps all rows that were
// deleted since. So a lock that is held for long is renewed: the session ends its transaction and
// locks the same rows in a new one, in one round trip, and nobody gets in between.
//
// That rests on the turnstiles. Whoever wants one of the rows passes its turnstile first. The
// session keeps the turnstiles for itself, apart from any transaction, from before the end of the
// one until it has the rows in the other. Nobody waits at the rows then: who does has passed a
// turnstile. So the rows are locked at once, and no other session can have seen them free.
//
// A renewal waits for nobody, whoever waits for its turnstiles. Each is asked for in the form in
// which the session has it: by its transaction first, by itself then. The server counts such a
// request up in the memory of the process, and never comes to the table in which locks conflict
// (LockAcquireExtended). The requests are tries all the same: where one ever had to wait, the
// renewal would fail at once.
//
// Rows of a caller's table are not renewed: others may lock them without us.
type renewal struct {
	every  time.Duration // 0: the session is not renewed
	next   time.Time
	locked []dialects.Request
	needed bool // the transaction has a number, or may have one: a token takes one now and then
	barred bool // the session holds what cannot be renewed
	work   bool // it runs work
}

// renewAtLeast is how often a held lock is renewed. With a short lease it is once in two of them.
const (
	renewAtLeast  = time.Minute
	leasesToRenew = 2
)

// note says what the session has locked. What locks no row needs a renewal only for the number that
// a token may have taken.
func (r *renewal) note(request dialects.Request, got dialects.Grant) {
	r.work = r.work || request.Work
	if got.Row != "" {
		request.Values = []dialects.Value{{Text: got.Row}}
	}
	if r.every == 0 && !r.work {
		r.every = min(renewAtLeast, leasesToRenew*request.Lease)
		r.plan()
	}
	r.locked = append(r.locked, request)
	r.needed = r.needed || locksRows(request) || request.Fence != ""
	r.barred = r.barred || !request.Ours
}

// plan chooses when the next renewal is due: at a random time, because all sessions of a Locker
// have their heartbeats in one moment. Those that began together, or were stopped together, are
// renewed a few at a time.
func (r *renewal) plan() { r.next = time.Now().Add(r.every/2 + rand.N(r.every/2)) }

func (r *renewal) possible() bool { return r.every > 0 && !r.barred }

func (r *renewal) due() bool { return r.needed && r.possible() && !time.Now().Before(r.next) }

// renew leaves the locks as they are when somebody cancels it, and is due again at the next
// heartbeat. After an error the session still has the turnstiles, so nobody gets in before the
// owner knows of the loss, when the connection is closed. That is what the savepoints are for:
// without them a statement that fails would end the transaction, and with it what the session does
// not keep for itself yet, or no longer.
func (s *session[Tx]) renew(ctx context.Context) error {
	s.spoiled = true // unless all goes well, also when the client library panics: see rollback
	renewed := true
	shown, err := s.shown(ctx)
	if err == nil {
		err = s.conn.Exec(ctx, sqltext.Ping+"\n"+s.renewScript(shown))
	}
	for tries := 0; server.State(err) == server.QueryCanceled && tries < cancelsWithstood; tries++ {
		renewed, err = s.resume(ctx, shown)
	}
	if err != nil {
		return fmt.Errorf("the renewal of the lock failed: %w", err)
	}
	s.spoiled = false // the last statement gave up what the session kept
	if renewed {
		s.renewal.plan()
	}
	return nil
}

// cancelsWithstood is how many cancels one renewal takes, each of which hits what the one before
// has made necessary.
const cancelsWithstood = 10

// resume goes on after a cancel. Behind one of the savepoints the transaction has the rows, so what
// the session keeps for itself is given up. In between the transaction is aborted. If the session
// keeps the turnstiles then, the rows are locked again as if nothing had happened. Else the cancel
// came before the first savepoint, and the lock is lost.
func (s *session[Tx]) resume(ctx context.Context, shown string) (renewed bool, err error) {
	unkeep := append([]string{"rollback to " + renewSavepoint}, s.unkeepSQL()...)
	err = s.conn.Exec(ctx, strings.Join(unkeep, "; "))
	if server.State(err) != server.UnknownSavepoint {
		return false, err
	}
	again := slices.Concat([]string{renewChain}, s.keptSQL(), s.relockSQL(shown), s.unkeepSQL())
	return true, s.conn.Exec(ctx, strings.Join(again, "; "))
}

// renewSoon renews what can be renewed, for a session whose wait begins again.
func (s *session[Tx]) renewSoon(ctx context.Context) error {
	if !s.renewal.possible() {
		return nil
	}
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	return s.renew(clean)
}

// shown is the label that the session shows, as it is to be in the next transaction.
func (s *session[Tx]) shown(ctx context.Context) (text string, err error) {
	columns, err := s.Line.Run(ctx, sqltext.Script{
		sqltext.Silent(renewSavepoint),
		{SQL: "select concat(extract(epoch from now()), ' ', " + nameSQL + ")"},
		sqltext.Silent("release " + renewSavepoint),
	})
	if err != nil {
		return "", err
	}
	since, name, _ := strings.Cut(columns[1][0], " ")
	begun, err := strconv.ParseFloat(since, 64)
	return label.Since(name, begun), err
}

// renewScript is one simple query, so that a pooler in transaction mode, which sees no end of a
// transaction in between, leaves the server's session to this connection.
func (s *session[Tx]) renewScript(shown string) string {
	return strings.Join(slices.Concat([]string{renewSavepoint}, s.turnstilesSQL(sqltext.Keeping),
		[]string{renewChain}, s.relockSQL(shown), s.unkeepSQL()), "; ")
}

// renewChain begins the next transaction in the act of ending the last, so there is no moment
// outside either.
const renewChain = "rollback and chain"

// turnstilesSQL calls function for the turnstiles of each request.
func (s *session[Tx]) turnstilesSQL(function string) (calls []string) {
	for _, request := range s.renewal.locked {
		calls = append(calls, "select "+sure(function, "bool_and("+sqltext.Pass(request, function, "n")+")")+
			" from unnest("+sqltext.Literal(sqltext.ArrayOf(turnstilesOf(request)))+"::int[]) n")
	}
	return calls
}

// sure fails by a division by zero when a call of function tells that a lock is not granted. What
// is given up may have been given up before, by a statement that was cancelled then.
func sure(function, call string) string {
	if function == sqltext.Unkeeping {
		return call
	}
	return "1 / (" + call + ")::int"
}

// relockSQL locks in a new transaction what was locked in the last, and sets a savepoint behind it.
func (s *session[Tx]) relockSQL(shown string) []string {
	set := "select " + sqltext.Set("application_name", sqltext.Escaped(shown))
	set += ", " + client.LeaseSQL(sqltext.Literal(sqltext.Milliseconds(s.lease)),
		sqltext.Literal(sqltext.Milliseconds(client.ClientCheck)))
	calls := append([]string{set}, s.turnstilesSQL(sqltext.Trying)...)
	for _, request := range s.renewal.locked {
		if !locksRows(request) {
			continue
		}
		rows, _ := rowsOf(request) // it has been locked by the same text
		values := make([]string, len(request.Values))
		for i, value := range request.Values {
			values[i] = value.Text
		}
		// A row that is missing is a division by zero. One that somebody has got who passes no
		// turnstiles is an error too. Either is the end of the session.
		calls = append(calls, "select 1 / (count(*) = "+strconv.Itoa(len(values))+")::int from (select from "+
			rows.table+" where "+rows.column+" in ("+strings.Join(values, ", ")+")"+rows.seeded+" order by "+
			rows.column+rowLock(request)+" nowait) locked")
	}
	return append(calls, renewSavepoint)
}

// unkeepSQL gives up what the session keeps for itself, and releases the savepoint.
func (s *session[Tx]) unkeepSQL() []string {
	return append(s.turnstilesSQL(sqltext.Unkeeping), "release "+renewSavepoint)
}

// keptSQL fails by a division by zero unless the session keeps all turnstiles for itself. The
// transaction must have none.
func (s *session[Tx]) keptSQL() (calls []string) {
	for _, request := range s.renewal.locked {
		numbers := turnstilesOf(request)
		calls = append(calls, "select 1 / (count(distinct objid) = "+strconv.Itoa(len(numbers))+")::int from pg_locks "+
			"where locktype = 'advisory' and granted and pid = pg_backend_pid() and objsubid = 2 and classid = "+
			sqltext.NumberOf(request.Table)+"::oid and objid in (select n::oid from unnest("+
			sqltext.Literal(sqltext.ArrayOf(numbers))+"::int[]) n)")
	}
	return calls
}

const renewSavepoint = "savepoint txlock_renew"
