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
)

// recordWait bounds the wait for the record: nobody but the next leader locks it for longer than a
// statement takes.
const recordWait = 3 * time.Second

// Appoint does what dialects.Keeper promises. The writer may have been stopped since it got the
// seat. Then a later one has written the record, or is to.
func (k Keeper) Appoint(ctx context.Context, election dialects.Rows, identity string, term int64) error {
	return k.with(ctx, func(q client.Line) error {
		columns, err := run(ctx, q, election.Table,
			client.Begin,
			sqltext.With("select "+sqltext.Set("lock_timeout", "$1"), sqltext.Milliseconds(recordWait)),
			sqltext.With("update "+election.Table+" set identity = $1, term = $2, since = clock_timestamp() "+
				"where id = $3 and hash = $4 and term < $2 returning id::text",
				identity, strconv.FormatInt(term, 10), election.Number(dialects.Record), election.Hash),
			sqltext.With("select id::text from "+election.Table+" where id = $1 and hash = $2",
				election.Number(dialects.Record), election.Hash),
			client.Commit,
		)
		switch {
		case err != nil:
			return err
		case len(columns[3]) == 0:
			return fmt.Errorf("%w: the record of election %s is gone", dialects.ErrNoRow, election.Hash)
		case len(columns[2]) == 0:
			return fmt.Errorf("%w: the record of election %s has a later term than %d", dialects.ErrLost,
				election.Hash, term)
		}
		return nil
	})
}

// Leader does what dialects.Keeper promises. It tries the turnstile in front of the office,
// which a renewal keeps, and writes nothing. What is read comes from a later snapshot, so it is of
// the holder that was met, or of one that came after it: never of one that had gone before.
func (k Keeper) Leader(ctx context.Context, election dialects.Rows) (leader dialects.Leader, err error) {
	office := election.Part(dialects.Office)
	office.Shared = true
	err = k.with(ctx, func(q client.Line) error {
		columns, err := run(ctx, q, election.Table,
			sqltext.Silent("begin isolation level read committed"),
			sqltext.With("select "+sqltext.Pass(office, sqltext.Trying, "$1"), office.Values[0].Text),
			sqltext.With("select concat_ws(' ', term, "+microseconds("since")+", identity) from "+
				election.Table+" where id = $1 and hash = $2 and part = 'record'", election.Number(dialects.Record),
				election.Hash),
			sqltext.With("select pg_is_in_recovery()"),
			client.Commit,
		)
		switch {
		case err != nil:
			return err
		case len(columns[2]) == 0:
			return fmt.Errorf("%w: the record of election %s is gone", dialects.ErrNoRow, election.Hash)
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

// microseconds counts those of a time since the Unix epoch. They are exact: extract is numeric.
func microseconds(time string) string {
	return "(extract(epoch from " + time + ") * 1000000::numeric)::bigint"
}
