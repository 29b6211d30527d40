package client

import (
	"context"
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
func Joined(statements ...string) string { return strings.Join(given(statements), "; ") }

// given are the statements that are not empty.
func given(statements []string) []string {
	return slices.DeleteFunc(slices.Clone(statements), func(text string) bool { return text == "" })
}

func (l Link) queries(statements []string) []string {
	if l.Several {
		return []string{Joined(statements...)}
	}
	return given(statements)
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

// AskBoth returns the first columns of the last two statements, which both have rows.
func (l Link) AskBoth(ctx context.Context, statements ...string) (first, second []string, err error) {
	if l.Several {
		columns, err := server.Columns(ctx, l, Joined(statements...))
		if len(columns) == 2 {
			return columns[0], columns[1], err
		}
		return nil, nil, err
	}
	end := len(statements) - 1
	if first, err = l.Ask(ctx, statements[:end]...); err == nil {
		second, err = l.Ask(ctx, statements[end])
	}
	return first, second, err
}
