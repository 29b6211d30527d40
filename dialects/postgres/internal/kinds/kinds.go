// Package kinds has the SQL of the kinds of locks that are clients of the others: texts, and no
// branches. Each kind has a file of its own.
package kinds

import (
	"strconv"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/locktable"
)

// Of are the texts for a lock table.
func Of(table string) (k dialects.Kinds, err error) {
	beside, err := sqltext.Beside(table)
	queue := strconv.Itoa(locktable.QueuePermit)
	k = dialects.Kinds{
		Ping: "select '' from " + beside("") + " where slots > 0 limit 1", // a standby refuses BEGIN READ WRITE
		Once: onceOf(beside(locktable.Markers)), Claims: claimsOf(beside(locktable.Claims)),
		Permits: permitsOf(beside(locktable.Permits), queue), Leaders: leadersOf(beside(locktable.Leaders)),
	}
	for _, text := range []*string{
		&k.Ping, &k.Once.Look, &k.Once.Mark, &k.Once.First, &k.Once.Forget, &k.Once.Sweep,
		&k.Claims.Read, &k.Claims.Keep, &k.Claims.List, &k.Claims.End, &k.Claims.Take, &k.Claims.Look, &k.Claims.Sweep,
		&k.Permits.Look, &k.Permits.Make,
		&k.Leaders.Rows, &k.Leaders.Write, &k.Leaders.Resign, &k.Leaders.Leader,
	} {
		*text = identifier.Qualified(*text)
	}
	return k, err
}
