package records

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Seats does what dialects.Electorate promises.
func Seats(ctx context.Context, with client.With, table string, election dialects.Named, create bool) (
	s dialects.Seats, err error,
) {
	beside, err := sqltext.Beside(table)
	if err != nil {
		return s, err
	}
	leaders := beside(locktable.Leaders)
	find := sqltext.With("select string_agg(part || ' ' || id, ' ' order by part) from "+leaders+" where hash = $1",
		election.Hash)
	missing := sqltext.With("nullif($2, ''), part from unnest(array['seat', 'record', 'office']) part "+
		"on conflict do nothing", election.Hash, election.Name)
	err = complete(ctx, with, leaders, "part", find, missing, func(found []string) (bool, error) {
		parts := strings.Fields(found[0])
		if len(parts) < 6 {
			return !create, nil
		}
		s = dialects.Seats{
			Election: election.Hash, Table: leaders, Office: parts[1], Record: parts[3], Seat: parts[5],
		}
		return true, nil
	})
	return s, err
}

// recordWait bounds the wait for the record: nobody but the next leader locks it for longer than a
// statement takes.
const recordWait = 3 * time.Second

// Appoint does what dialects.Electorate promises. The writer may have been stopped since it got the
// seat. Then a later one has written the record, or is to.
func Appoint(ctx context.Context, with client.With, seats dialects.Seats, identity string, term int64) error {
	return with(ctx, func(q client.Querier) error {
		columns, err := run(ctx, q, seats.Table,
			client.Begin,
			sqltext.With("select "+sqltext.Set("lock_timeout", "$1"), sqltext.Milliseconds(recordWait)),
			sqltext.With("update "+seats.Table+" set identity = $1, term = $2, since = clock_timestamp() "+
				"where id = $3 and hash = $4 and term < $2 returning id::text",
				identity, strconv.FormatInt(term, 10), seats.Record, seats.Election),
			sqltext.With("select id::text from "+seats.Table+" where id = $1 and hash = $2",
				seats.Record, seats.Election),
			client.Commit,
		)
		switch {
		case err != nil:
			return err
		case len(columns[3]) == 0:
			return fmt.Errorf("%w: the record of election %s is gone", dialects.ErrNoRow, seats.Election)
		case len(columns[2]) == 0:
			return fmt.Errorf("%w: the record of election %s has a later term than %d", dialects.ErrLost,
				seats.Election, term)
		}
		return nil
	})
}

// Leader does what dialects.Electorate promises. It tries the turnstile in front of the office,
// which a renewal keeps, and writes nothing. What is read comes from a later snapshot, so it is of
// the holder that was met, or of one that came after it: never of one that had gone before.
func Leader(ctx context.Context, with client.With, seats dialects.Seats) (leader dialects.Leader, err error) {
	office := seats.Row(seats.Office)
	office.Shared = true
	err = with(ctx, func(q client.Querier) error {
		columns, err := run(ctx, q, seats.Table,
			sqltext.Silent("begin isolation level read committed"),
			sqltext.With("select "+sqltext.Pass(office, sqltext.Trying, "$1"), seats.Office),
			sqltext.With("select concat_ws(' ', term, (extract(epoch from since) * 1000000)::bigint, identity) from "+
				seats.Table+" where id = $1 and hash = $2 and part = 'record'", seats.Record, seats.Election),
			sqltext.With("select pg_is_in_recovery()"),
			client.Commit,
		)
		switch {
		case err != nil:
			return err
		case len(columns[2]) == 0:
			return fmt.Errorf("%w: the record of election %s is gone", dialects.ErrNoRow, seats.Election)
		case server.IsTrue(columns[3][0]):
			return errStandby
		case server.IsTrue(columns[1][0]):
			return dialects.ErrNoLeader
		}
		leader, err = leaderIn(columns[2][0])
		return err
	})
	return leader, err
}

// errStandby is for a server that does not show the locks of its primary.
var errStandby = errors.New("this server is a standby, which does not know who leads: ask the primary")

// leaderIn reads a term, microseconds since 1970, and an identity.
func leaderIn(record string) (leader dialects.Leader, err error) {
	fields := strings.SplitN(record, " ", 3)
	if len(fields) < 3 { // it is locked, and nobody has led yet
		return leader, dialects.ErrNoLeader
	}
	var since int64
	leader.Term, err = strconv.ParseInt(fields[0], 10, 64)
	if err == nil {
		since, err = strconv.ParseInt(fields[1], 10, 64)
	}
	leader.Identity, leader.Since = fields[2], time.UnixMicro(since)
	return leader, err
}
