package client

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"strings"

	"github.com/txlock/txlock/dialects/internal/sqlconn"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/internal/peer"
)

// Conn is a connection of a pool.
type Conn struct {
	*sqlconn.Conn
	Owned *owned // nil on a caller's pool
}

// Link is where statements of the session go.
func (c Conn) Link() Link { return Link{c, c.Owned != nil} }

// QueryContext implements sqlconn.Querier, for what is not the work's.
func (c Conn) QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error) {
	return c.Querier().QueryContext(context.WithValue(ctx, ours{}, true), query, args...)
}

// ExecContext implements sqlconn.Querier, for what is not the work's.
func (c Conn) ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error) {
	return c.Querier().ExecContext(context.WithValue(ctx, ours{}, true), query, args...)
}

// Busy is ErrBusy while rows of the work are open. To send something then costs the connection.
func (c Conn) Busy() (err error) {
	if !(peer.Conn{Conn: c.Socket}).Gone() {
		_ = c.Raw(func(pooled any) error {
			if conn, is := pooled.(driver.Validator); is && !conn.IsValid() {
				err = server.ErrBusy
			}
			return nil
		})
	}
	return err
}

// Link is where statements go: a connection, or a transaction of the caller's. They travel in one
// query where it takes that, and one after the other elsewhere, up to the first that fails. Empty
// ones are left out.
type Link struct {
	sqlconn.Querier
	Several bool // in one query: a connection of Open
}

const separator = "; " // which no statement has in front of its tag

func (l Link) queries(statements []string) []string {
	given := slices.DeleteFunc(slices.Clone(statements), func(text string) bool { return text == "" })
	if l.Several {
		return []string{strings.Join(given, separator)}
	}
	return given
}

// Run returns how many rows the last statement has affected.
func (l Link) Run(ctx context.Context, statements ...string) (affected int64, err error) {
	for _, query := range l.queries(statements) {
		result, err := l.ExecContext(ctx, query)
		if err != nil {
			return 0, err
		}
		if affected, err = result.RowsAffected(); err != nil {
			return 0, err
		}
	}
	return affected, nil
}

// Ask returns the first column of the rows of the first statement that may have rows.
func (l Link) Ask(ctx context.Context, statements ...string) ([]string, error) {
	return sqlconn.Column(l.Grids(ctx, statements...))
}

// Grids returns the rows of each statement that may have rows, up to the first that fails.
func (l Link) Grids(ctx context.Context, statements ...string) (grids [][][]string, err error) {
	for _, query := range l.queries(statements) {
		more, err := sqlconn.Grids(l.QueryContext(ctx, query))
		if grids = append(grids, more...); err != nil {
			return grids, err
		}
	}
	return grids, nil
}
