package txlock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/txlock/txlock/dialects"
)

// Statement is a statement of [Mutex.Exec].
type Statement struct {
	// SQL is one statement, with the placeholders of the database: $1 on PostgreSQL, ? on MySQL and
	// MariaDB.
	SQL string
	// Args are its arguments, as the client library takes them.
	Args []any
	// Rows is how many rows it must affect. With any other number nothing is committed: that is
	// [ErrRows]. 0 is any number. A SELECT affects the rows that it returns.
	Rows int
	// Into is where the first row goes of a statement that returns rows, as Scan of the client
	// library takes it. No row is [ErrRows]. After an error it may have been written to. Args of a
	// statement behind may point there.
	Into []any
}

// Exec waits for the lock, runs the statements in order in the lock's own transaction, and commits.
// It returns how many rows each has affected, and promises what [Mutex.Do] does, but a connection
// that breaks, also in the wait, may be [ErrUnknown]. It takes one round trip where the server can
// judge all before it commits, see docs/databases.md. The error of a statement has its number, and
// is the client library's own, or [ErrRows]. Within bounds the wait, ctx everything. A
// [Locker.Semaphore] has no Exec.
func (m *Mutex[Tx]) Exec(ctx context.Context, statements ...Statement) (affected []int64, err error) {
	return m.exec(ctx, "Exec", false, statements)
}

func (m *Mutex[Tx]) exec(ctx context.Context, verb string, try bool, statements []Statement) (affected []int64,
	err error,
) {
	list, err := checked(statements)
	if err == nil && m.permit != nil {
		err = errors.New("a Semaphore has no Exec: send the statements in the work of a Do")
	}
	if err != nil {
		return nil, m.wrap(verb, err)
	}
	none := func(context.Context, Tx) error { return nil }
	err = m.attempts(ctx, verb, none, func(ctx context.Context, m *Mutex[Tx], granted txFunc[Tx]) (err error) {
		var g grant[Tx]
		sent := &dialects.Work{Statements: list, Context: ctx}
		if s, of := m.locker.carried(ctx); s != nil {
			g.Grant, err = m.nest(ctx, s, of, verb, try, sent, nil)
		} else {
			g, err = m.acquire(ctx, try, sent)
			err = final(m.wrap(verb, err)) // in a Do no COMMIT is sent, and that may run again
		}
		if affected = g.Affected; isOfWork(err) {
			var none Tx
			_ = granted(ctx, none)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return affected, nil
}

// checked are the statements for a driver.
func checked(statements []Statement) ([]dialects.Statement, error) {
	if len(statements) == 0 {
		return nil, errors.New("no statement given")
	}
	list := make([]dialects.Statement, len(statements))
	for i, s := range statements {
		switch {
		case strings.TrimSpace(s.SQL) == "":
			return nil, fmt.Errorf("statement %d: empty SQL", i+1)
		case s.Rows < 0:
			return nil, fmt.Errorf("statement %d: Rows is %d; 0 is any number", i+1, s.Rows)
		}
		list[i] = dialects.Statement(s)
	}
	return list, nil
}

// isOfWork tells whether an error is that of a statement of Exec, for which the lock was granted.
func isOfWork(err error) bool {
	var of *dialects.StatementError
	return errors.As(err, &of)
}
