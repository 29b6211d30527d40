// Package leaks finds goroutines that were left behind.
package leaks

import (
	"time"

	"go.uber.org/goleak"

	"github.com/txlock/txlock/internal/test/eventually"
)

// Find returns an error that lists the goroutines that are left, except those of the options.
// goleak alone gives them 0.4 s to end, which is too short on a busy machine.
func Find(options ...goleak.Option) error {
	for deadline := time.Now().Add(eventually.Patience); ; {
		if err := goleak.Find(options...); err == nil || time.Now().After(deadline) {
			return err
		}
	}
}

// FindBesidesPools also leaves out the background goroutines of open pools.
func FindBesidesPools(options ...goleak.Option) error {
	return Find(append([]goleak.Option{
		goleak.IgnoreAnyFunction("database/sql.(*DB).connectionCleaner"),
		goleak.IgnoreAnyFunction("database/sql.(*DB).connectionOpener"),
		goleak.IgnoreAnyFunction("github.com/jackc/pgx/v5/pgconn/internal/bgreader.(*BGReader).bgRead"),
		goleak.IgnoreAnyFunction("github.com/go-sql-driver/mysql.(*mysqlConn).startWatcher.func1"),
	}, options...)...)
}
