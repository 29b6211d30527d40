package servers

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"strings"
	"time"
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
