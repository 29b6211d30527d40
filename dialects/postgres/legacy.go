package postgres

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// Advisory is the lock of pg_advisory_lock(key) and pg_advisory_xact_lock(key), for Mutex.Beside of
// package txlock. Programs that hold one of these in the same database, and the copy that Beside
// returns, exclude each other. Where Shared shares the Mutex, it is pg_advisory_lock_shared's.
//
// It is taken until the end of the transaction. So it serves behind a pooler of transactions, where
// pg_advisory_lock itself does not: a program there takes it in one transaction, on a session that
// is another client's in the next.
func Advisory(key int64) dialects.Legacy { return legacy(key) }

// AdvisoryPair is the same for pg_advisory_lock(a, b), whose numbers are apart from those of
// pg_advisory_lock(key).
func AdvisoryPair(a, b int32) dialects.Legacy { return legacy(int64(a), int64(b)) }

func legacy(numbers ...int64) dialects.Legacy {
	texts := make([]string, len(numbers))
	for i, number := range numbers {
		texts[i] = strconv.FormatInt(number, 10)
	}
	return dialects.Legacy{System: system, Name: strings.Join(texts, ",")}
}

// Locks beside the rows are taken as turnstiles are: until the end of the transaction, and by the
// session while it is renewed. The wait for one comes before that for a turnstile, in every
// session, so no circle of waits has both.

// legacyCalls call function for the locks beside the rows of request. Argument is how a number
// stands in the text.
func legacyCalls(request dialects.Request, function string, argument func(number string) string) (calls []string) {
	if request.SharesBeside {
		function += "_shared"
	}
	for _, lock := range request.Beside {
		first, second, pair := strings.Cut(lock.Name, ",")
		if pair {
			calls = append(calls, function+"("+argument(first)+"::int, "+argument(second)+"::int)")
		} else {
			calls = append(calls, function+"("+argument(first)+"::bigint)")
		}
	}
	return calls
}

// legacyStatement takes them. A try notes whether it has got them all, for its turnstiles.
func legacyStatement(request dialects.Request, as role) (s sqltext.Statement) {
	if len(request.Beside) == 0 {
		return s
	}
	if request.Try {
		tried := legacyCalls(request, sqltext.Trying, s.Bind)
		s.SQL = "select set_config('" + passedSetting + "', (" + strings.Join(tried, " and ") + ")::text, true)"
	} else {
		s.SQL = "select " + strings.Join(legacyCalls(request, sqltext.Passing, s.Bind), ", ")
	}
	if as == foreign {
		s.SQL += " where " + suitableSQL(request)
	}
	return s
}

// legacySQL calls function for the locks beside the rows of each request that is to be renewed.
func (s *session[Tx]) legacySQL(function string) (calls []string) {
	for _, request := range s.renewal.locked {
		for _, call := range legacyCalls(request, function, sqltext.Literal) {
			calls = append(calls, "select "+sure(function, call))
		}
	}
	return calls
}

// legacyKeptSQL fails by a division by zero unless the session has all of them for itself.
func (s *session[Tx]) legacyKeptSQL() (calls []string) {
	for _, request := range s.renewal.locked {
		for _, lock := range request.Beside {
			where := fmt.Sprintf("objsubid = 1 and (classid::bigint << 32) | objid::bigint = '%s'::bigint", lock.Name)
			if a, b, pair := strings.Cut(lock.Name, ","); pair {
				where = fmt.Sprintf("objsubid = 2 and classid = '%s'::int::oid and objid = '%s'::int::oid", a, b)
			}
			calls = append(calls, "select 1 / (count(*) > 0)::int from pg_locks where locktype = 'advisory' and "+
				"granted and pid = pg_backend_pid() and "+where)
		}
	}
	return calls
}
