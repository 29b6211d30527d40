package wrapped

import (
	"context"
	"database/sql/driver"
)

// Statements are those of a connection as a sql.DB of its own sends them. What the connection
// cannot do, database/sql does in its other ways.
type Statements struct {
	driver.Conn
	Within func(context.Context) context.Context // in which a statement runs; nil: as it is given
}

func (s Statements) within(ctx context.Context) context.Context {
	if s.Within == nil {
		return ctx
	}
	return s.Within(ctx)
}

// PrepareContext implements driver.ConnPrepareContext.
func (s Statements) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	if preparer, ok := s.Conn.(driver.ConnPrepareContext); ok {
		return preparer.PrepareContext(s.within(ctx), query)
	}
	return s.Prepare(query)
}

// ExecContext implements driver.ExecerContext.
func (s Statements) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if execer, ok := s.Conn.(driver.ExecerContext); ok {
		return execer.ExecContext(s.within(ctx), query, args)
	}
	return nil, driver.ErrSkip
}

// QueryContext implements driver.QueryerContext.
func (s Statements) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if queryer, ok := s.Conn.(driver.QueryerContext); ok {
		return queryer.QueryContext(s.within(ctx), query, args)
	}
	return nil, driver.ErrSkip
}

// CheckNamedValue implements driver.NamedValueChecker.
func (s Statements) CheckNamedValue(value *driver.NamedValue) error {
	if checker, ok := s.Conn.(driver.NamedValueChecker); ok {
		return checker.CheckNamedValue(value)
	}
	return driver.ErrSkip
}
