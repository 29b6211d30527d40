package records

import (
	"context"
	"fmt"
	"strconv"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/claims"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// ClaimScript makes a change and then reads the claim. It changes nothing unless a query that ends
// as where says has a row. Drawn is the rest of a query that gives a token, if the change has none.
func ClaimScript(locks string, change dialects.ClaimChange, drawn string, where func(*sqltext.Statement) string) (
	sqltext.Script, error,
) {
	beside, err := sqltext.Beside(locks)
	table := beside(locktable.Claims)
	s := sqltext.Statement{Silent: true}
	end := func(from string) string {
		micros := s.Bind(strconv.FormatInt(change.For.Microseconds(), 10))
		return from + " + " + micros + "::float8 * interval '1 microsecond'"
	}
	held := func() string { return heldSQL(&s, change) + " and exists (select " + where(&s) + ")" }
	switch change.Verb {
	case dialects.KeepClaim:
	case dialects.TakeClaim:
		if change.Token != 0 {
			drawn = "(select " + number(&s, change.Token) + " token) drawn"
		}
		// The statement behind the lock reads the clock once, so that the end of one is never
		// behind the begin of the next.
		s.SQL = "insert into " + table + " as former (claim, name, holder, secret, token, since, until) select " +
			s.Bind(bytea(change.Hash)) + "::bytea, nullif(" + s.Bind(change.Name) + ", ''), " + s.Bind(change.By) +
			", " + number(&s, change.Secret) + ", token, taken, " + end("taken") + " from " + drawn +
			", (select clock_timestamp() taken " + where(&s) + ") granted on conflict (claim) do update " +
			"set name = excluded.name, holder = excluded.holder, until = excluded.until, " +
			"secret = case when former.until > excluded.since then former.secret else excluded.secret end, " +
			"token = case when former.until > excluded.since then former.token else excluded.token end, " +
			"since = case when former.until > excluded.since then former.since else excluded.since end " +
			"where former.holder = excluded.holder or former.until <= excluded.since"
	case dialects.ExtendClaim:
		s.SQL = "update " + table + " set until = " + end("clock_timestamp()") + held()
	case dialects.ReleaseClaim:
		s.SQL = "update " + table + " set until = to_timestamp(0)" + held()
	case dialects.BreakClaim:
		s.SQL = "update " + table + " set until = clock_timestamp()" + held()
	}
	read := sqltext.With("select "+claimSQL+" from "+table+" where claim = $1", bytea(change.Hash))
	if s.SQL == "" {
		return sqltext.Script{read}, err
	}
	return sqltext.Script{s, read}, err
}

// KeptSQL is the condition that a claim is still held, which a statement behind its lock reads.
func KeptSQL(s *sqltext.Statement, locks string, change dialects.ClaimChange) (string, error) {
	beside, err := sqltext.Beside(locks)
	return "exists (select from " + beside(locktable.Claims) + heldSQL(s, change) + ")", err
}

// heldSQL is the condition that a claim is its holder's, and not over.
func heldSQL(s *sqltext.Statement, change dialects.ClaimChange) string {
	return " where claim = " + s.Bind(bytea(change.Hash)) + "::bytea and holder = " + s.Bind(change.By) +
		" and token = " + number(s, change.Token) + " and secret = " + number(s, change.Secret) +
		" and until > clock_timestamp()"
}

// microseconds counts those of a time since the Unix epoch. They are exact: extract is numeric.
func microseconds(time string) string {
	return "(extract(epoch from " + time + ") * 1000000::numeric)::bigint"
}

func number(s *sqltext.Statement, n int64) string {
	return s.Bind(strconv.FormatInt(n, 10)) + "::bigint"
}

func bytea[T [32]byte | []byte](bytes T) string { return fmt.Sprintf(`\x%x`, bytes) }

// claimSQL is the state of a claim in one column, for claims.States. Infinite times, which nobody
// writes, would be NULL.
var claimSQL = "concat_ws(' ', encode(claim, 'hex'), token, secret, " + microseconds("since") + ", " +
	microseconds("until") + ", " + microseconds("until") + " - " + microseconds("clock_timestamp()") +
	", encode(convert_to(holder, 'UTF8'), 'hex'), encode(convert_to(coalesce(name, ''), 'UTF8'), 'hex'))"

// Claims does what dialects.Keeper promises.
func (k Keeper) Claims(ctx context.Context, table string, hashes ...[32]byte) (
	states map[[32]byte]dialects.ClaimState, err error,
) {
	beside, err := sqltext.Beside(table)
	if err != nil {
		return nil, err
	}
	all := "select " + claimSQL + " from " + beside(locktable.Claims) + " where "
	read := sqltext.With(all + "until > clock_timestamp() order by until limit " + strconv.Itoa(dialects.MostClaims))
	if len(hashes) > 0 {
		listed := make([]string, len(hashes))
		for i, hash := range hashes {
			listed[i] = bytea(hash)
		}
		read = sqltext.With(all+"claim = any($1::bytea[])", sqltext.ArrayOf(listed))
	}
	err = k.with(ctx, func(q client.Line) error {
		columns, err := q.Run(ctx, sqltext.Script{read})
		switch {
		case server.State(err) == server.NoPrivilege:
			return fmt.Errorf("%w: %w", dialects.ErrUnreadable, err)
		case err != nil:
			return server.Ours(err, table)
		}
		states, err = claims.States(columns[0])
		return err
	})
	return states, err
}
