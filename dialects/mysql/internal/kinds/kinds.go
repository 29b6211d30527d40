// Package kinds has the SQL of the kinds of locks that are clients of the others: texts, and no
// branches. Each kind has a file of its own.
package kinds

import (
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Of are the texts for a lock table.
func Of(table string, galera bool) (k dialects.Kinds, err error) {
	once, err := sqltext.Beside(table, locktable.Markers)
	claims, _ := sqltext.Beside(table, locktable.Claims)
	permits, _ := sqltext.Beside(table, locktable.Permits)
	leaders, _ := sqltext.Beside(table, locktable.Leaders)
	ping := "SELECT IF(" + sqltext.Writable + ", '', CONCAT('the server ', @@hostname, ':', @@port, ' is read_only, " +
		"and takes no writes')) FROM " + table + " LIMIT 1"
	return dialects.Kinds{
		Ping: ping,
		Once: onceOf(once), Claims: claimsOf(claims, galera), Permits: permitsOf(permits),
		Leaders: leadersOf(leaders),
	}, err
}
