package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// Link is where statements go: a connection, or a transaction of the caller's. Nothing else knows
// how several of them travel: in one query where it takes that, and one after the other elsewhere,
// up to the first that fails. Empty statements are left out.
type Link struct {
	server.Querier
	Several bool // it takes several statements in one query
}

// Joined is a query of several statements.
func Joined(statements ...string) string { return strings.Join(present(statements), "; ") }

func present(statements []string) []string {
	return slices.DeleteFunc(statements, func(text string) bool { return text == "" })
}

// queries are what is sent for statements.
func (l Link) queries(statements []string) []string {
	if l.Several {
		return []string{Joined(statements...)}
	}
	return present(statements)
}

// ErrUnsent says that the last statements were not sent.
var ErrUnsent = errors.New("what comes behind was not sent")

// Run returns how many rows the last statement has affected. The error may be ErrUnsent.
func (l Link) Run(ctx context.Context, statements ...string) (affected int64, err error) {
	queries := l.queries(statements)
	for i, query := range queries {
		result, err := l.ExecContext(ctx, query)
		if err != nil && i < len(queries)-1 {
			err = fmt.Errorf("%w (%w)", err, ErrUnsent)
		}
		if err != nil {
			return 0, err
		}
		if affected, err = result.RowsAffected(); err != nil {
			return 0, err
		}
	}
	return affected, nil
}

// Ask returns the first column of the rows of the first statement that has rows.
func (l Link) Ask(ctx context.Context, statements ...string) (column []string, err error) {
	for _, query := range l.queries(statements) {
		rows, err := server.Column(ctx, l, query)
		if err != nil {
			return nil, err
		}
		if column == nil {
			column = rows
		}
	}
	return column, nil
}
