// Package kinds has the SQL of the kinds of locks that are clients of the others: texts, and no
// branches. Each kind has a file of its own.
package kinds

import (
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/locktable"
)

// of is a query about the table {}. NUMBER is that of its queue locks.
func of(table, text string) dialects.Query {
	text = strings.NewReplacer("{}", table, "NUMBER", sqltext.NumberOf(table), "NOW", "clock_timestamp()",
		"MICROSECONDS", "float8 * interval '1 microsecond'").Replace(text)
	return dialects.Query{SQL: identifier.Qualified(text), Table: table}
}

func reading(table, text string) dialects.Query {
	q := of(table, text)
	q.Reads = true
	return q
}

// Of are the texts for a lock table.
func Of(table string) (k dialects.Kinds, err error) {
	beside, err := sqltext.Beside(table)
	queue := strconv.Itoa(locktable.QueuePermit)
	return dialects.Kinds{
		// A standby refuses BEGIN READ WRITE.
		Ping: reading(beside(""), "select '' from {} where slots > 0 limit 1"),
		Once: onceOf(beside(locktable.Markers)), Claims: claimsOf(beside(locktable.Claims)),
		Permits: permitsOf(beside(locktable.Permits), queue), Leaders: leadersOf(beside(locktable.Leaders)),
	}, err
}

// micros are the microseconds since the Unix epoch of a time. They are exact: extract is numeric.
func micros(time string) string {
	return "(extract(epoch from " + time + ") * 1000000::numeric)::bigint"
}

// at is a time of that many microseconds.
func at(micros string) string {
	return "to_timestamp(0) + " + micros + "::MICROSECONDS"
}

// sweep deletes rows, known by their key, whose time is long ago: see dialects.OnceSQL.
func sweep(table, key, time string) dialects.Query {
	return of(table, "with old as (select "+key+", "+time+" as at from {} where "+time+" >= "+at("$1")+
		" and "+time+" < now() - $2::MICROSECONDS order by at limit $3::bigint "+
		"for update skip locked), gone as (delete from {} former using old where former."+key+" = old."+
		key+") select concat_ws(' ', count(*), "+micros("max(at)")+") from old")
}
