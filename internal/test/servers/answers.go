package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
)

// startUp is how long a server may take to answer, on a machine that others keep busy.
const startUp = 2 * time.Minute

// probe is a request that fails until the server is ready for it.
type probe func(context.Context) error

// answers returns nil if the database answers.
func (k Kind) answers(ctx context.Context, dsn string) error {
	return statement(k.driver(), dsn, "SELECT 1")(ctx)
}

// creates is the probe of a new server: it creates the database txlock. That it exists is no error,
// because an earlier try may have succeeded without an answer in time.
func (k Kind) creates(dsn string) probe {
	if !k.Postgres() {
		return statement(k.driver(), dsn, "CREATE DATABASE IF NOT EXISTS txlock")
	}
	return func(ctx context.Context) error {
		err := statement(k.driver(), dsn, "CREATE DATABASE txlock")(ctx)
		if failed := (*pgconn.PgError)(nil); errors.As(err, &failed) && failed.Code == pgDuplicateDatabase {
			return nil
		}
		return err
	}
}

// pgDuplicateDatabase is PostgreSQL's duplicate_database.
const pgDuplicateDatabase = "42P04"

func statement(driver, dsn, text string) probe {
	return func(ctx context.Context) error {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			return err
		}
		defer db.Close()
		_, err = db.ExecContext(ctx, text)
		return err
	}
}

// wait tries until the server answers.
func (p probe) wait(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startUp)
	defer cancel()
	return poll(ctx, 50*time.Millisecond, func() error {
		once, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		return p(once)
	})
}

// poll tries something again and again until it succeeds.
func poll(ctx context.Context, every time.Duration, try func() error) error {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}
