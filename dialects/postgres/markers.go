package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/batch"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// markersOf derives the quoted names of the table and of its index from the lock table's. An index
// stands in the schema of its table.
func markersOf(table string) (markers, index string, err error) {
	beside, err := sqltext.Beside(table)
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

// doneSetting says whether a marker was found, to the statement behind it.
const doneSetting = "txlock.done"

// errFound says that the marker was there before the lock. The transaction is open, and has neither
// locked nor written anything.
var errFound = fmt.Errorf("%w: found", dialects.ErrDone)

// doneStatement reads a marker in front of a lock, which is then not taken.
func doneStatement(marker dialects.Marker) (sqltext.Statement, error) {
	var s sqltext.Statement
	found, err := foundSQL(marker, &s)
	s.SQL = "select set_config('" + doneSetting + "', exists (select " + found + ")::text, true)"
	return s, err
}

// foundSQL is the rest of a query that finds the marker, if the work was done. It is evaluated
// where nothing is waited for, so it is now when the statement begins.
func foundSQL(marker dialects.Marker, s *sqltext.Statement) (string, error) {
	markers, _, err := markersOf(marker.Table)
	text := " from " + markers + " where marker = " + s.Bind(hashOf(marker))
	if marker.Period > 0 {
		begin := windowSQL("statement_timestamp()", s.Bind(periodOf(marker)))
		text += " and " + microseconds("done_at") + " >= " + begin
	}
	return text, err
}

// markStatement writes a marker behind the lock, and returns a row if it was not there. Nothing is
// written unless the transaction has the row of request, and a suitable level: a marker that
// another session is writing would be waited for.
func markStatement(marker dialects.Marker, request dialects.Request, on terms) (s sqltext.Statement, err error) {
	if on.as == owner && isShort(request) { // which sets the mark with the lock
		return insertMarker(marker, s, func(s *sqltext.Statement) string {
			return "where current_setting('" + client.MarkSetting + "', true) = " + s.Bind(on.mark)
		})
	}
	rows, err := rowsOf(request)
	if err != nil {
		return s, err
	}
	return insertMarker(marker, s, func(s *sqltext.Statement) string {
		from := "from " + rows.table + " where " + rows.column + " = " + s.Bind(rows.values) + rows.seeded
		if on.as == foreign {
			from += " and " + isolationSQL
		}
		if request.Try { // see passedSetting
			from += " and current_setting('" + passedSetting + "', true) = 'true'"
		}
		return from + " for update skip locked"
	})
}

// insertMarker writes a marker. The clock is read when the statement runs, after the grant, and not
// when the transaction began. A clock that was set back does not make work run twice: what was done
// later than now was done.
func insertMarker(marker dialects.Marker, s sqltext.Statement, where func(*sqltext.Statement) string) (
	sqltext.Statement, error,
) {
	markers, _, err := markersOf(marker.Table)
	s.SQL = "insert into " + markers + " as former (marker, done_at) select " + s.Bind(hashOf(marker)) +
		"::bytea, clock_timestamp() " + where(&s) + " on conflict (marker) do "
	if marker.Period > 0 {
		s.SQL += "update set done_at = excluded.done_at where " + microseconds("former.done_at") + " < " +
			windowSQL("excluded.done_at", s.Bind(periodOf(marker)))
	} else {
		s.SQL += "nothing"
	}
	s.SQL += " returning '1'"
	return s, err
}

// Mark implements dialects.Marking.
func (s *session[Tx]) Mark(ctx context.Context, marker dialects.Marker) error {
	mark, err := insertMarker(marker, sqltext.Statement{}, func(*sqltext.Statement) string { return "" })
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
			sqltext.Silent("delete from "+markers+" where marker = $1", hashOf(marker)))
	}
	return err
}

// Done implements dialects.Recorder.
func (d *driver[Tx]) Done(ctx context.Context, marker dialects.Marker) (at time.Time, err error) {
	var read sqltext.Statement
	found, err := foundSQL(marker, &read)
	if err != nil {
		return at, err
	}
	read.SQL = "select " + microseconds("done_at") + "::text" + found
	err = d.withConn(ctx, func(q querier) error {
		columns, err := q.Run(ctx, sqltext.Script{read})
		if err != nil || len(columns[0]) == 0 {
			return classify(err, dialects.Request{Table: marker.Table, Ours: true})
		}
		micros, err := strconv.ParseInt(columns[0][0], 10, 64)
		at = time.UnixMicro(micros)
		return err
	})
	return at, err
}

// Sweep implements dialects.Recorder. Each batch begins at the age where the last one ended: the
// server need not look again at what was deleted before.
func (d *driver[Tx]) Sweep(ctx context.Context, table string, age time.Duration) (deleted int64, err error) {
	markers, _, err := markersOf(table)
	if err != nil {
		return 0, err
	}
	sweep := "with old as (select marker, done_at from " + markers + " where done_at >= $1 and done_at < $2 " +
		"order by done_at limit $3::int for update skip locked), " +
		"gone as (delete from " + markers + " as former using old where former.marker = old.marker) " +
		"select concat_ws(' ', count(*), " + isoSQL("max(done_at)") + ") from old"
	err = d.withConn(ctx, func(q querier) error {
		// Before 15 an interval that is spelled out ends at 36 minutes of microseconds.
		limit := isoSQL("clock_timestamp() - $1::float8 * interval '1 microsecond'")
		limits, err := q.Run(ctx, sqltext.Script{
			sqltext.With("select "+limit, strconv.FormatInt(age.Microseconds(), 10)),
		})
		if err != nil {
			return err
		}
		from, until := "-infinity", limits[0][0]
		var size batch.Size
		for {
			most, begun := size.Next(), time.Now()
			columns, err := q.Run(ctx, sqltext.Script{
				client.Begin, sqltext.With(sweep, from, until, strconv.Itoa(most)), client.Commit,
			})
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
			if n < most {
				return nil
			}
			from = last
			size.Took(time.Since(begun))
		}
	})
	return deleted, err
}

// runDetached runs one statement of ours in the transaction. With ctx, pgx would close the
// connection when that ends.
func (s *session[Tx]) runDetached(ctx context.Context, marker dialects.Marker, sent sqltext.Statement) (
	[]string, error,
) {
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	columns, err := s.Run(clean, sqltext.Script{sent})
	if server.Broken(err) {
		return nil, dialects.Lost(err)
	}
	if err != nil {
		return nil, classify(err, dialects.Request{Table: marker.Table, Ours: true})
	}
	return columns[0], nil
}
