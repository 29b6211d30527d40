package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/network"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// leadersSchema is the SQL text that creates the table. Clients agree on the hash of
// an election's name. The name is for people. Nobody writes a seat: its waiters would chase the
// versions of the row.
func leadersSchema(leaders string) string {
	return "CREATE TABLE IF NOT EXISTS " + leaders + " (\n" +
		"    id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,\n" +
		"    hash text NOT NULL,\n    name text,\n" +
		"    part text NOT NULL CHECK (part IN ('seat', 'record', 'office')),\n" +
		"    identity text,\n    term bigint NOT NULL DEFAULT 0,\n    since timestamptz,\n" +
		"    UNIQUE (hash, part)\n)"
}

// Seats implements dialects.Electorate.
func (d *driver[Tx]) Seats(ctx context.Context, table string, election dialects.Named, create bool) (
	s dialects.Seats, err error,
) {
	leaders, err := sqltext.LeadersOf(table)
	if err != nil {
		return s, err
	}
	find := sqltext.With("select string_agg(part || ' ' || id, ' ' order by part) from "+leaders+
		" where hash = $1", election.Hash)
	args := []string{election.Hash, election.Name}
	parts := "nullif($2, ''), part from unnest(array['seat', 'record', 'office']) part on conflict do nothing"
	add := sqltext.Silent("insert into "+leaders+" (hash, name, part) select $1, "+parts, args...)
	number := sqltext.Silent("insert into "+leaders+" (id, hash, name, part) overriding system value "+
		"select (select max(id) from "+leaders+") + row_number() over (), $1, "+parts, args...)
	err = d.withConn(ctx, func(q querier) error {
		for _, attempt := range addScripts(find, add, number) {
			columns, err := q.Run(ctx, attempt)
			if err != nil {
				q.abandon(ctx)
				return classify(err, dialects.Request{Table: leaders, Ours: true})
			}
			parts := strings.Fields(columns[len(columns)-1][0])
			if len(parts) == 6 {
				s = dialects.Seats{
					Election: election.Hash, Table: leaders, Office: parts[1], Record: parts[3], Seat: parts[5],
				}
				return nil
			}
			if !create {
				return nil
			}
		}
		return fmt.Errorf("%w: the rows of election %s went as they came", dialects.ErrNoRow, election.Hash)
	})
	return s, err
}

// addScripts find rows, add them where they are missing, and number them where the server does not:
// a logical replica has the rows of its publisher, but not how far their numbers were drawn.
func addScripts(find, add, number sqltext.Statement) []sqltext.Script {
	return []sqltext.Script{
		{find}, {client.Begin, add, client.Commit, find}, {client.Begin, number, client.Commit, find},
	}
}

// recordWait bounds the wait for the record: nobody but the next leader locks it for longer than a
// statement takes.
const recordWait = 3 * time.Second

// Appoint implements dialects.Electorate. The writer may have been stopped since it got the seat.
// Then a later one has written the record, or is to.
func (d *driver[Tx]) Appoint(ctx context.Context, seats dialects.Seats, identity string, term int64) error {
	d.passing.RLock()
	defer d.passing.RUnlock()
	return d.withConn(ctx, func(q querier) error {
		columns, err := q.Run(ctx, sqltext.Script{
			client.Begin,
			sqltext.With("select "+setSQL("lock_timeout", "$1"), sqltext.Milliseconds(recordWait)),
			sqltext.With("update "+seats.Table+" set identity = $1, term = $2, since = clock_timestamp() "+
				"where id = $3 and hash = $4 and term < $2 returning id::text",
				identity, strconv.FormatInt(term, 10), seats.Record, seats.Election),
			sqltext.With("select id::text from "+seats.Table+" where id = $1 and hash = $2",
				seats.Record, seats.Election),
			client.Commit,
		})
		switch {
		case err != nil:
			q.abandon(ctx)
			return classify(err, dialects.Request{Table: seats.Table, Ours: true})
		case len(columns[3]) == 0:
			return fmt.Errorf("%w: the record of election %s is gone", dialects.ErrNoRow, seats.Election)
		case len(columns[2]) == 0:
			return fmt.Errorf("%w: the record of election %s has a later term than %d", dialects.ErrLost,
				seats.Election, term)
		}
		return nil
	})
}

// Leader implements dialects.Electorate. It tries the turnstile in front of the office, which a
// renewal keeps, and writes nothing. What is read comes from a later snapshot, so it is of the
// holder that was met, or of one that came after it: never of one that had gone before.
func (d *driver[Tx]) Leader(ctx context.Context, seats dialects.Seats) (leader dialects.Leader, err error) {
	office := passSQL(seats.Row(seats.Office), "pg_try_advisory_xact_lock_shared", "$1")
	err = d.withConn(ctx, func(q querier) error {
		columns, err := q.Run(ctx, sqltext.Script{
			sqltext.Silent("begin isolation level read committed"),
			sqltext.With("select "+office, seats.Office),
			sqltext.With("select concat_ws(' ', term, (extract(epoch from since) * 1000000)::bigint, identity) from "+
				seats.Table+" where id = $1 and hash = $2 and part = 'record'", seats.Record, seats.Election),
			{SQL: "select pg_is_in_recovery()"},
			client.Commit,
		})
		switch {
		case err != nil:
			q.abandon(ctx)
			return classify(err, dialects.Request{Table: seats.Table, Ours: true})
		case len(columns[2]) == 0:
			return fmt.Errorf("%w: the record of election %s is gone", dialects.ErrNoRow, seats.Election)
		case isTrue(columns[3][0]):
			return errStandby
		case isTrue(columns[1][0]):
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

// mayPass are classes of SQLSTATEs that may pass by themselves, and single ones.
var mayPass = []string{
	"08",                                          // connection exception
	"40",                                          // transaction rollback
	"53",                                          // insufficient resources: too many connections, say
	"57P",                                         // operator intervention: the server stops, starts, ends a session
	"25006",                                       // read only: a standby, or a primary that is about to be one
	"25P03",                                       // the lease of a session has run out
	"25P04",                                       // transaction_timeout
	server.LockNotAvailable, server.QueryCanceled, // a limit of the role's on a wait
}

// Passing implements dialects.Electorate.
func (d *driver[Tx]) Passing(err error) bool {
	if errors.Is(err, errNoRun) {
		return true
	}
	if state := server.State(err); state != "" {
		for _, prefix := range mayPass {
			if strings.HasPrefix(state, prefix) {
				return true
			}
		}
		return false
	}
	var refused *pgconn.ConnectError
	return network.Failed(err) || errors.As(err, &refused) || errors.Is(err, pgconn.ErrConnClosed)
}
