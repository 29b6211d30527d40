package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
)

// markersOf derives the quoted names of the table and of its index from the lock table's. An index
// stands in the schema of its table.
func markersOf(table string) (markers, index string, err error) {
	beside, err := besides(table)
	index = beside("_once_at")
	return beside("_once"), index[strings.LastIndex(index, `."`)+1:], err
}

// markersSchema is the SQL text that creates the table. Sweep finds old markers by the index.
// Install runs it only where the table is missing: CREATE INDEX would wait for work that is under
// way also where there is an index.
func markersSchema(table string) (markers string, schema []string, err error) {
	markers, index, err := markersOf(table)
	return markers, []string{
		"CREATE TABLE IF NOT EXISTS " + markers + " (\n" +
			"    marker bytea NOT NULL PRIMARY KEY,\n    done_at timestamptz NOT NULL\n)",
		"CREATE INDEX IF NOT EXISTS " + index + " ON " + markers + " (done_at)",
	}, err
}

// microseconds counts those of a time since the Unix epoch. They are exact: extract is numeric.
func microseconds(time string) string { return "(extract(epoch from " + time + ") * 1000000)::bigint" }

// windowSQL is when the window of a time begins.
func windowSQL(time, period string) string {
	return microseconds(time) + " - " + microseconds(time) + " % " + period + "::bigint"
}

// isoSQL writes a time as every session reads it, whatever its DateStyle and its time zone are.
func isoSQL(time string) string {
	return "to_char((" + time + ") at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00')"
}

func hashOf(marker dialects.Marker) string { return fmt.Sprintf(`\x%x`, marker.Hash) }

func periodOf(marker dialects.Marker) string {
	return strconv.FormatInt(marker.Period.Microseconds(), 10)
}

// markStatement writes a marker, and returns a row if it was not there. The clock is read when the
// statement runs, which is after the grant, and not when the transaction began. A clock that was set
// back does not make work run twice: what was done later than now was done.
//
// With a request, nothing is written unless the transaction has its row, and at a suitable level: a
// marker that another session is writing would be waited for.
func markStatement(marker dialects.Marker, request *dialects.Request, as role) (statement, error) {
	markers, _, err := markersOf(marker.Table)
	if err != nil {
		return statement{}, err
	}
	var s statement
	source := "select " + s.bind(hashOf(marker)) + "::bytea, clock_timestamp()"
	if request != nil {
		rows, err := rowsOf(*request)
		if err != nil {
			return s, err
		}
		source += " from " + rows.table + " where " + rows.column + " = " + s.bind(rows.values) + rows.seeded
		if as == foreign {
			source += " and " + isolationSQL
		}
		source += " for update skip locked"
	}
	conflict := "nothing"
	if marker.Period > 0 {
		conflict = "update set done_at = excluded.done_at where " + microseconds("former.done_at") + " < " +
			windowSQL("excluded.done_at", s.bind(periodOf(marker)))
	}
	s.sql = "insert into " + markers + " as former (marker, done_at) " + source +
		" on conflict (marker) do " + conflict + " returning '1'"
	return s, nil
}

// Mark implements dialects.Marking.
func (s *session[Tx]) Mark(ctx context.Context, marker dialects.Marker) error {
	mark, err := markStatement(marker, nil, owner)
	if err != nil {
		return err
	}
	marked, err := s.runDetached(ctx, marker, mark)
	if err == nil && len(marked) == 0 {
		err = dialects.ErrDone
	}
	return err
}

// Unmark implements dialects.Marking.
func (s *session[Tx]) Unmark(ctx context.Context, marker dialects.Marker) error {
	markers, _, err := markersOf(marker.Table)
	if err == nil {
		_, err = s.runDetached(ctx, marker,
			statement{"delete from " + markers + " where marker = $1", []any{hashOf(marker)}})
	}
	return err
}

// Done implements dialects.Recorder.
func (d *driver[Tx]) Done(ctx context.Context, marker dialects.Marker) (at time.Time, err error) {
	markers, _, err := markersOf(marker.Table)
	if err != nil {
		return at, err
	}
	read := statement{
		"select " + microseconds("done_at") + "::text from " + markers + " where marker = $1",
		[]any{hashOf(marker)},
	}
	if marker.Period > 0 {
		read.sql += " and " + microseconds("done_at") + " >= " + windowSQL("statement_timestamp()",
			read.bind(periodOf(marker)))
	}
	err = d.withConn(ctx, func(q querier) error {
		columns, err := q.run(ctx, script{read})
		if err != nil || len(columns[0]) == 0 {
			return classify(err, dialects.Request{Table: markers, Ours: true})
		}
		micros, err := strconv.ParseInt(columns[0][0], 10, 64)
		at = time.UnixMicro(micros)
		return err
	})
	return at, err
}

// sweepBatch is how many markers are deleted in one transaction. Whoever wants to write one of them
// waits for that.
const sweepBatch = 1000

// Sweep implements dialects.Recorder. Each batch begins at the age where the last one ended: the
// server need not look again at what was deleted before.
func (d *driver[Tx]) Sweep(ctx context.Context, table string, age time.Duration) (deleted int64, err error) {
	markers, _, err := markersOf(table)
	if err != nil {
		return 0, err
	}
	sweep := "with old as (select marker, done_at from " + markers + " where done_at >= $1 and done_at < $2 " +
		"order by done_at limit " + strconv.Itoa(sweepBatch) + " for update skip locked), " +
		"gone as (delete from " + markers + " as former using old where former.marker = old.marker) " +
		"select concat_ws(' ', count(*), " + isoSQL("max(done_at)") + ") from old"
	err = d.withConn(ctx, func(q querier) error {
		limits, err := q.run(ctx, script{{
			"select " + isoSQL("clock_timestamp() - $1::interval"),
			[]any{strconv.FormatInt(age.Microseconds(), 10) + " microseconds"},
		}})
		if err != nil {
			return err
		}
		from, until := "-infinity", limits[0][0]
		for {
			columns, err := q.run(ctx, script{{sql: beginSQL}, {sweep, []any{from, until}}, {sql: "commit"}})
			if err != nil {
				q.abandon(ctx)
				return classify(err, dialects.Request{Table: markers, Ours: true})
			}
			number, last, _ := strings.Cut(columns[1][0], " ")
			n, err := strconv.Atoi(number)
			if err != nil {
				return err
			}
			deleted += int64(n)
			if n < sweepBatch {
				return nil
			}
			from = last
		}
	})
	return deleted, err
}

// runDetached runs one statement of ours in the transaction: pgx would close the connection when ctx
// ends.
func (s *session[Tx]) runDetached(ctx context.Context, marker dialects.Marker, sent statement) ([]string, error) {
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	columns, err := s.run(clean, script{sent})
	if broken(err) {
		return nil, lost(err)
	}
	if err != nil {
		return nil, classify(err, dialects.Request{Table: marker.Table, Ours: true})
	}
	return columns[0], nil
}
