package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"log"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/txlock/txlock/internal/test/servers"
)

// All tables are in their own schema, which is a database on MySQL and MariaDB.
const (
	lockTable = "torture.slots"
	counters  = "torture.counters" // a value per key, changed in Do
	// a row for each Do that took effect; without a unique index, so that it shows duplicates
	applied = "torture.applied"
	works   = "torture.works"  // a row for each time that work of Once was done; without a unique index
	inside  = "torture.inside" // a row for each holder of lookFirst
)

// quiet stops go-sql-driver from printing broken connections, which the faults cause on purpose.
func quiet() error { return mysql.SetLogger(log.New(io.Discard, "", 0)) }

func isPostgres(kind servers.Kind) bool {
	return kind == servers.Postgres15 || kind == servers.Postgres18
}

func driverName(kind servers.Kind) string {
	if isPostgres(kind) {
		return "pgx"
	}
	return "mysql"
}

// leaseOf is the lease of the run. It is short, so that faults often outlast it. A cluster takes
// more than five seconds to miss its primary, and loads the machine with three servers.
func leaseOf(s settings) time.Duration {
	switch {
	case s.Cluster != "":
		return 4 * time.Second
	case isPostgres(s.Kind):
		return time.Second
	}
	return 2 * time.Second
}

var mysqlAddress = regexp.MustCompile(`\(([^)]*)\)`)

// workerDSN is the DSN of a worker. It leads through the worker's proxy, and has a mark by which
// the server can tell our sessions from others.
func workerDSN(kind servers.Kind, dsn, address string, process int) (string, error) {
	if isPostgres(kind) {
		u, err := url.Parse(dsn)
		if err != nil {
			return "", err
		}
		query := u.Query()
		query.Set("application_name", fmt.Sprintf("torture-%d", process))
		u.RawQuery, u.Host = query.Encode(), address
		return u.String(), nil
	}
	base, query, _ := strings.Cut(dsn, "?")
	base = mysqlAddress.ReplaceAllString(base, "("+address+")")
	base = base[:strings.LastIndexByte(base, '/')+1] + "torture"
	if query != "" {
		base += "?" + query
	}
	return base, nil
}

// database is the server as its administrator sees it, without a proxy.
type database struct {
	kind servers.Kind
	dsn  string
	db   *sql.DB
}

func openDatabase(kind servers.Kind, dsn string) (*database, error) {
	db, err := sql.Open(driverName(kind), dsn)
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(4)
	return &database{kind: kind, dsn: dsn, db: db}, nil
}

// redirect goes on with another server. The connections to the former one may be broken, so what
// their end says is nothing to report.
func (d *database) redirect(dsn string) error {
	next, err := openDatabase(d.kind, dsn)
	if err != nil {
		return err
	}
	former := d.db
	d.dsn, d.db = dsn, next.db
	_ = former.Close()
	return nil
}

func (d *database) version(ctx context.Context) (version string, err error) {
	err = d.db.QueryRowContext(ctx, "SELECT version()").Scan(&version)
	if before, _, long := strings.Cut(version, " on "); long { // PostgreSQL adds the compiler that built it
		version = before
	}
	return version, err
}

// prepare creates the tables and installs the lock table.
func (d *database) prepare(ctx context.Context, jobs int) error {
	drop := "DROP SCHEMA IF EXISTS torture"
	if isPostgres(d.kind) {
		drop += " CASCADE"
	}
	statements := []string{
		drop, "CREATE SCHEMA torture",
		"CREATE TABLE " + counters + " (k INT PRIMARY KEY, value BIGINT NOT NULL)",
		"CREATE TABLE " + applied + " (operation BIGINT NOT NULL, k INT NOT NULL, seen BIGINT NOT NULL)",
		"CREATE TABLE " + inside + " (k BIGINT NOT NULL, operation BIGINT NOT NULL, writes INT NOT NULL)",
		"CREATE TABLE " + works + " (work BIGINT NOT NULL, operation BIGINT NOT NULL)",
	}
	statements = append(statements, jobsSQL(jobs)...)
	for k := range allKeys {
		statements = append(statements, fmt.Sprintf("INSERT INTO %s VALUES (%d, 0)", counters, k))
	}
	for _, statement := range statements {
		if _, err := d.db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}
