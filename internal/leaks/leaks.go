// Package leaks looks for goroutines that are left behind.
package leaks

import (
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end. goleak alone gives them 0.4 s, and one that
// closes a connection may wait for that long for the processor.
const patience = 20 * time.Second

// Find returns an error that lists the goroutines that are left, besides those of the options.
func Find(options ...goleak.Option) error {
	for deadline := time.Now().Add(patience); ; {
		if err := goleak.Find(options...); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// FindBesidesPools leaves out what pools do in the background for as long as they are open.
func FindBesidesPools(options ...goleak.Option) error {
	return Find(append([]goleak.Option{
		goleak.IgnoreAnyFunction("database/sql.(*DB).connectionCleaner"),
		goleak.IgnoreAnyFunction("database/sql.(*DB).connectionOpener"),
		goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn/internal/bgreader.(*BGReader).bgRead"),
		goleak.IgnoreAnyFunction("github.com/go-sql-driver/mysql.(*mysqlConn).startWatcher.func1"),
	}, options...)...)
}
