package mysql

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// Named is the lock of GET_LOCK(name, …), for Mutex.Beside of package txlock. Programs that hold it
// on the same server, and the copy that Beside returns, exclude each other. MySQL does not know
// case in names, MariaDB does. MySQL refuses a name of more than 64 characters, or with one outside
// the Basic Multilingual Plane, and MariaDB one of more than 192 bytes (10.11). Work in such a lock
// must not take or release the same name itself.
//
// A name is one server's: not that of a whole Galera cluster, nor of a replication group.
func Named(name string) dialects.Legacy {
	lock := dialects.Legacy{System: system, Name: name}
	if name == "" {
		lock.Err = errors.New("the name is empty")
	} else if _, err := nameSQL(lock); err != nil {
		lock.Err = fmt.Errorf("name %.100q: %w", name, err)
	}
	return lock
}

// A name belongs to the session, and outlives errors, COMMIT and ROLLBACK. So the session notes it
// before it asks for it, and gives it back on every way out: behind the statement that ends the
// transaction, in the same query where the connection takes several. A connection on which that is
// not confirmed is closed. RELEASE_LOCK of a name that the session has not does nothing.

// besideVar is the variable of the session that takes the answer: so the statement has no result.
const besideVar = "txlock_beside"

// namesSQL takes the names beside the rows of request, each once: the call may be a second one,
// after a limit of the session's has ended the wait for a row. One that is not got is an overflow,
// also where the wait was ended: then MariaDB's GET_LOCK is NULL, and no error. (A subquery of two
// rows would be none there either: it does not run in a statement that was ended.)
func namesSQL(request dialects.Request, limit time.Duration, comment string) (takes []string) {
	prefix, hint := limitSQL(limit)
	seconds := "100000000" // as for the rows: the statement, or its context, has the limit
	if request.Try {
		seconds = "0"
	}
	for _, lock := range request.Beside {
		name, _ := nameSQL(lock)
		got := "IF(IS_USED_LOCK(" + name + ") = CONNECTION_ID(), 1, GET_LOCK(" + name + ", " + seconds + "))"
		takes = append(takes, fmt.Sprintf("%sSELECT %s%d + IF(%s = 1, 0, 1) INTO @%s", prefix, hint+comment,
			uint64(math.MaxUint64), got, besideVar))
	}
	return takes
}

func nameSQL(lock dialects.Legacy) (string, error) {
	return sqltext.Literal(dialects.Value{Text: lock.Name})
}

// takesNames is an error where nobody could give the names beside request back, or they are to be
// shared.
func takesNames(request dialects.Request, as role) error {
	switch {
	case len(request.Beside) == 0:
	case request.SharesBeside:
		return errors.New("a lock beside rows that are shared: GET_LOCK has no shared form")
	case as == foreign:
		return errors.New("a lock beside rows in LockTx: GET_LOCK stays with the session behind the caller's COMMIT, " +
			"and nobody would give it back; use Do, whose work has a transaction of its own")
	}
	return nil
}

// refusedName is what the error of a statement says of the names beside request.
func refusedName(request dialects.Request, err error) error {
	if len(request.Beside) == 0 {
		return err
	}
	switch server.Number(err) {
	case server.OutOfRange:
		return fmt.Errorf("%w: another session has a name beside it: %w", dialects.ErrNotAcquired, err)
	case server.NameDeadlock:
		return fmt.Errorf("%w: of names of GET_LOCK: %w", dialects.ErrDeadlock, err)
	}
	return err
}

// nameLocks notes the names that the session is about to ask for. After an error undo gives back
// those that it had in no spelling before: RELEASE_LOCK of another spelling takes the lock away. A
// name that the server refuses to take it also refuses to release. What may not be sent behind a
// COMMIT then, whose answer its error would be, is sent apart.
func (s *session) nameLocks(request dialects.Request) (undo func(context.Context)) {
	had := slices.Clone(s.names)
	var fresh []dialects.Legacy
	for _, lock := range request.Beside {
		lower := strings.ToLower(lock.Name) // as the server does; EqualFold knows fewer letters
		if !slices.ContainsFunc(had, func(other dialects.Legacy) bool { return strings.ToLower(other.Name) == lower }) {
			fresh = append(fresh, lock)
		}
		if !slices.Contains(had, lock) {
			s.names = append(s.names, lock)
		}
	}
	return func(ctx context.Context) {
		if len(fresh) == 0 {
			return
		}
		clean, cancel := interrupt.Detached(ctx)
		defer cancel()
		if s.exec(clean, releaseSQL(fresh)) != nil {
			s.apart = true
			return
		}
		s.names = slices.DeleteFunc(s.names, func(lock dialects.Legacy) bool { return slices.Contains(fresh, lock) })
	}
}

// releaseSQL gives names back, if there are some. It is no DO, which swallows a KILL QUERY.
func releaseSQL(names []dialects.Legacy) string {
	if len(names) == 0 {
		return ""
	}
	calls := make([]string, len(names))
	for i, lock := range names {
		name, _ := nameSQL(lock)
		calls[i] = "RELEASE_LOCK(" + name + ")"
	}
	return "SET @" + besideVar + " = CONCAT_WS('', " + strings.Join(calls, ", ") + ")"
}

// giveNamesBack gives back what has not gone with the end of the transaction.
func (s *session) giveNamesBack(ctx context.Context) error {
	if len(s.names) == 0 {
		return nil
	}
	_, err := s.conn.ExecContext(ctx, releaseSQL(s.names))
	if err == nil {
		s.names = nil
	}
	return err
}
