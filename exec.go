package txlock

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/txlock/txlock/dialects"
)

// Statement is a statement of [Mutex.Exec].
type Statement = dialects.Statement

// Exec waits for the lock, runs the statements in order in the lock's own transaction, and commits.
// It returns how many rows each has affected, and promises what [Mutex.Do] does, but a connection
// that breaks, also in the wait, may be [ErrUnknown]. It takes one round trip where the server can
// judge all before it commits, see docs/exec.md. The error of a statement has its number, and
// is the client library's own, or [ErrRows]. Within bounds the wait, ctx everything. A
// [Locker.Semaphore] has no Exec.
func (m *Mutex[Tx]) Exec(ctx context.Context, statements ...Statement) (affected []int64, err error) {
	return m.exec(ctx, "Exec", false, statements)
}

func (m *Mutex[Tx]) exec(ctx context.Context, verb string, try bool, statements []Statement) (affected []int64,
	err error,
) {
	err = check(statements)
	if err == nil && m.permit != nil {
		err = errors.New("a Semaphore has no Exec: send the statements in the work of a Do")
	}
	if err != nil {
		return nil, m.wrap(verb, err)
	}
	none := func(context.Context, Tx) error { return nil }
	err = m.attempts(ctx, verb, none, func(ctx context.Context, m *Mutex[Tx], granted txFunc[Tx]) (err error) {
		var g grant[Tx]
		sent := &dialects.Work{Statements: statements, Context: ctx}
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

// check is for what is wrong without a look at the database.
func check(statements []Statement) error {
	if len(statements) == 0 {
		return errors.New("no statement given")
	}
	for i, s := range statements {
		switch {
		case strings.TrimSpace(s.SQL) == "":
			return fmt.Errorf("statement %d: empty SQL", i+1)
		case s.Rows < 0:
			return fmt.Errorf("statement %d: Rows is %d; 0 is any number", i+1, s.Rows)
		}
	}
	return nil
}

// isOfWork tells whether an error is that of a statement of Exec, for which the lock was granted.
func isOfWork(err error) bool {
	var of *dialects.StatementError
	return errors.As(err, &of)
}
