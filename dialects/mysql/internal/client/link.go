package client

import (
	"context"
	"errors"
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

// ErrUnsent says that the last statements were not sent.
var ErrUnsent = errors.New("what comes behind was not sent")

// unsent is an error that is ErrUnsent, and does not say so: on the way out of a COMMIT whose
// outcome is unknown it would be taken for a word on that.
type unsent struct{ error }

func (u unsent) Unwrap() error { return u.error }

// Is implements what errors.Is asks for.
func (unsent) Is(target error) bool { return target == ErrUnsent }

// Run returns how many rows the last statement has affected. The error may be ErrUnsent.
func (l Link) Run(ctx context.Context, statements ...string) (affected int64, err error) {
	err = l.send(statements, func(query string) error {
		result, err := l.ExecContext(ctx, query)
		if err == nil {
			affected, err = result.RowsAffected()
		}
		return err
	})
	return affected, err
}

// Ask returns the first column of the rows of the first statement that has rows.
func (l Link) Ask(ctx context.Context, statements ...string) (column []string, err error) {
	err = l.send(statements, func(query string) error {
		rows, err := server.Column(ctx, l, query)
		if column == nil {
			column = rows
		}
		return err
	})
	return column, err
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

func (l Link) send(statements []string, send func(query string) error) error {
	if l.Several {
		return send(Joined(statements...))
	}
	statements = given(statements)
	for i, query := range statements {
		if err := send(query); err != nil {
			if i < len(statements)-1 {
				err = unsent{err}
			}
			return err
		}
	}
	return nil
}
