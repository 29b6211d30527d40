package servers

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	_ "github.com/jackc/pgx/v5/stdlib"
)

// asks is a connection to a server for a few statements.
type asks struct{ *sql.DB }

// ask connects. On MySQL and MariaDB it does so without a database: a new standby has none yet.
func ask(server *Server) (asks, error) {
	dsn := server.DSN
	if !server.Kind.Postgres() {
		dsn = strings.TrimSuffix(dsn, "txlock")
	}
	db, err := sql.Open(server.Kind.driver(), dsn)
	return asks{db}, err
}

// on runs do with a connection to a server.
func on(server *Server, do func(asks) error) error {
	a, err := ask(server)
	if err != nil {
		return err
	}
	defer a.Close()
	return do(a)
}

// tell runs statements on a server.
func tell(ctx context.Context, server *Server, statements ...string) error {
	return on(server, func(a asks) error { return a.do(ctx, statements...) })
}

// answerOf is a server's answer to a query.
func answerOf(ctx context.Context, server *Server, query string, arguments ...any) (answer string, err error) {
	err = on(server, func(a asks) (err error) {
		answer, err = a.text(ctx, query, arguments...)
		return err
	})
	return answer, err
}

// do runs statements.
func (a asks) do(ctx context.Context, statements ...string) error {
	for _, statement := range statements {
		if _, err := a.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}

// text is the answer to a query.
func (a asks) text(ctx context.Context, query string, arguments ...any) (answer string, err error) {
	if err = a.QueryRowContext(ctx, query, arguments...).Scan(&answer); err != nil {
		err = fmt.Errorf("%s: %w", query, err)
	}
	return answer, err
}

// until waits until a query returns true.
func (a asks) until(ctx context.Context, query string) error {
	ctx, cancel := context.WithTimeout(ctx, startUp)
	defer cancel()
	return poll(ctx, 10*time.Millisecond, func() error {
		var yes bool
		if err := a.QueryRowContext(ctx, query).Scan(&yes); err != nil || yes {
			return err
		}
		return fmt.Errorf("%s: no", query)
	})
}

// question is whether a server is the primary. To be closed.
type question struct {
	leads func(context.Context) (bool, error)
	io.Closer
}

// byQuery asks by a query on a connection of its own.
func byQuery(kind Kind, dsn, query string) (question, error) {
	db, err := sql.Open(kind.driver(), dsn)
	if err != nil {
		return question{}, err
	}
	db.SetMaxOpenConns(1)
	return question{func(ctx context.Context) (leads bool, err error) {
		err = db.QueryRowContext(ctx, query).Scan(&leads)
		return leads, err
	}, db}, nil
}

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
