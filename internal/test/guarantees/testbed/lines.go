package testbed

import (
	"database/sql"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock/internal/test/tier"
)

// Lines calls one of its functions for each line of the table engine × client, or for the part of
// it that the tier takes. The short tier has two clients for each engine, of PostgreSQL for the
// newest version. The usual tier runs each client of PostgreSQL on one of its versions, but a
// sql.DB on a pgxpool.Pool, which is in the full tier alone, and all of MySQL and MariaDB. The full
// tier has two for each further version: a pool of the library's own, and a sql.DB of the caller's.
func Lines(onPgx func(*Engine, Client[pgx.Tx]), onSQL func(*Engine, Client[*sql.Tx])) {
	var postgres, mysql []*Engine
	for _, e := range Engines {
		switch {
		case e.Further && e.Postgres:
			onPgx(e, PgxOpened())
			onSQL(e, PostgresSQL[0])
		case e.Further:
			onSQL(e, MySQLOpened())
			onSQL(e, MySQLSQL[0])
		case e.Postgres:
			postgres = append(postgres, e)
		default:
			mysql = append(mysql, e)
		}
	}
	for v, e := range postgres {
		var all, spread []func()
		for _, c := range PostgresPgx {
			all = append(all, func() { onPgx(e, c) })
		}
		for _, c := range PostgresSQL {
			all = append(all, func() { onSQL(e, c) })
		}
		for i, line := range all {
			if (i+1)%len(postgres) == v {
				spread = append(spread, line)
			}
		}
		all = append(all, func() { onSQL(e, SQLFromPool()) })
		var two []func()
		if v == len(postgres)-1 {
			two = []func(){all[0], all[len(PostgresPgx)-1]}
		}
		call(tier.Pick(two, spread, all))
	}
	for _, e := range mysql {
		for _, c := range MySQLSQL {
			onSQL(e, c)
		}
	}
}

func call(lines []func()) {
	for _, line := range lines {
		line()
	}
}
