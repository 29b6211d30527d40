package records

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/batch"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// microseconds counts those of a time since the Unix epoch. They are exact: extract is numeric.
func microseconds(time string) string {
	return "(extract(epoch from " + time + ") * 1000000::numeric)::bigint"
}

// windowSQL is when the window of a time begins.
func windowSQL(s *sqltext.Statement, marker dialects.Marker, time string) string {
	return microseconds(time) + " - " + microseconds(time) + " % " + number(s, marker.Period.Microseconds())
}

// isoSQL writes a time as every session reads it, whatever its DateStyle and its time zone are.
func isoSQL(time string) string {
	return "to_char((" + time + ") at time zone 'UTC', 'YYYY-MM-DD HH24:MI:SS.US+00')"
}

// LookSQL asks what Marker.Read reads. The clock is read when the statement runs, after the grant,
// and not when the transaction began. A clock that was set back does not make work run twice: what
// was done later than now was done.
func LookSQL(table string, marker dialects.Marker) (s sqltext.Statement, err error) {
	beside, err := sqltext.Beside(table)
	found := "select " + microseconds("done_at") + " from " + beside(locktable.Markers) + " where marker = " +
		s.Bind(bytea(marker.Hash))
	if marker.Period > 0 {
		found += " and " + microseconds("done_at") + " >= " + windowSQL(&s, marker, "present")
	}
	s.SQL = "select concat_ws(' ', " + microseconds("present") + ", (" + found +
		")) from (select clock_timestamp() present) clock"
	return s, err
}

// MarkSQL forgets a marker, or writes it, and returns a row if it was not there.
func MarkSQL(table string, marker dialects.Marker) (s sqltext.Statement, err error) {
	beside, err := sqltext.Beside(table)
	if marker.Verb == dialects.ForgetMarker {
		return sqltext.Silent("delete from "+beside(locktable.Markers)+" where marker = $1", bytea(marker.Hash)), err
	}
	at := "clock_timestamp()"
	if !marker.At.IsZero() {
		at = s.Bind(marker.At.UTC().Format("2006-01-02 15:04:05.000000+00")) + "::timestamptz"
	}
	s.SQL = "insert into " + beside(locktable.Markers) + " as former (marker, done_at) select " +
		s.Bind(bytea(marker.Hash)) + "::bytea, " + at + " on conflict (marker) do "
	if marker.Period > 0 {
		s.SQL += "update set done_at = excluded.done_at where " + microseconds("former.done_at") + " < " +
			windowSQL(&s, marker, "excluded.done_at")
	} else {
		s.SQL += "nothing"
	}
	s.SQL += " returning '1'"
	return s, err
}

// Done does what dialects.Keeper promises.
func (k Keeper) Done(ctx context.Context, table string, marker dialects.Marker) (at time.Time, err error) {
	look, err := LookSQL(table, marker)
	if err != nil {
		return at, err
	}
	err = k.with(ctx, func(q client.Line) error {
		columns, err := q.Run(ctx, sqltext.Script{look})
		if err != nil {
			return server.Ours(err, table)
		}
		at, err = marker.Read(columns[0][0])
		return err
	})
	return at, err
}

// Sweep does what dialects.Keeper promises, by age.
func (k Keeper) Sweep(ctx context.Context, table string, age time.Duration) (deleted int64, err error) {
	beside, err := sqltext.Beside(table)
	if err == nil {
		deleted, err = k.sweep(ctx, beside(locktable.Markers), "marker", "done_at", age)
	}
	if err == nil {
		var ended int64
		ended, err = k.sweep(ctx, beside(locktable.Claims), "claim", "until", age)
		deleted += ended
		if errors.Is(err, dialects.ErrNotInstalled) { // it is older than claims
			err = nil
		}
	}
	return deleted, err
}

// sweep deletes the rows of a table whose time is over for longer than age.
func (k Keeper) sweep(ctx context.Context, table, key, at string, age time.Duration) (deleted int64, err error) {
	sweep := "with old as (select " + key + ", " + at + " from " + table + " where " + at + " >= $1 and " + at +
		" < $2 order by " + at + " limit $3::int for update skip locked), " +
		"gone as (delete from " + table + " as former using old where former." + key + " = old." + key + ") " +
		"select concat_ws(' ', count(*), " + isoSQL("max("+at+")") + ") from old"
	err = k.with(ctx, func(q client.Line) error {
		// Before 15 an interval that is spelled out ends at 36 minutes of microseconds.
		limit := isoSQL("clock_timestamp() - $1::float8 * interval '1 microsecond'")
		limits, err := q.Run(ctx, sqltext.Script{
			sqltext.With("select "+limit, strconv.FormatInt(age.Microseconds(), 10)),
		})
		if err != nil {
			return err
		}
		deleted, err = batch.Run("-infinity", func(from string, size int) (last string, n int, err error) {
			columns, err := run(ctx, q, table,
				client.Begin, sqltext.With(sweep, from, limits[0][0], strconv.Itoa(size)), client.Commit)
			if err != nil {
				return "", 0, err
			}
			number, last, _ := strings.Cut(columns[1][0], " ")
			n, err = strconv.Atoi(number)
			return last, n, err
		})
		return err
	})
	return deleted, err
}

func number(s *sqltext.Statement, n int64) string {
	return s.Bind(strconv.FormatInt(n, 10)) + "::bigint"
}

func bytea(hash [32]byte) string { return fmt.Sprintf(`\x%x`, hash) }
