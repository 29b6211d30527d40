package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock/dialects"
)

// sqlSession is a connection of a sql.DB with its transaction.
type sqlSession struct {
	line
	driver     *SQLDriver
	conn       *sql.Conn
	tx         *sql.Tx
	abandon    context.CancelFunc // ends what tx is doing, by closing the connection
	mark       string             // the value that this transaction alone carries, once work runs in it
	guarded    bool               // the session's default is read only: work runs, or ran, in it
	savepoints int
}

func (s *sqlSession) Tx() *sql.Tx { return s.tx }

func (s *sqlSession) Socket() (socket net.Conn) {
	_ = raw(s.conn, func(c *pgx.Conn) error { socket = c.PgConn().Conn(); return nil })
	return socket
}

func (s *sqlSession) Ping(ctx context.Context) error {
	return raw(s.conn, func(c *pgx.Conn) error { return ping(ctx, c) })
}

func (s *sqlSession) Join(ctx context.Context, request dialects.Request) (int64, error) {
	if err := s.gone(); err != nil {
		return 0, err
	}
	return s.line.join(ctx, request, s.driver.withLine)
}

func (s *sqlSession) Nest(ctx context.Context, work func(tx *sql.Tx) error) error {
	if s.status() == 'E' {
		return errOuterAborted
	}
	s.savepoints++
	name := "txlock_" + strconv.Itoa(s.savepoints)
	var begin script
	if !s.guarded {
		begin = script{{sql: guardSQL}}.marked(s.mark)
		s.guarded = true
	}
	clean, cancel := context.WithTimeout(detached(ctx), cleanUpTimeout) // pgx closes the connection when ctx ends
	_, err := s.run(clean, append(begin, statement{sql: "savepoint " + name}))
	cancel()
	if err != nil {
		return lost(err)
	}
	done := false
	end := func(undo bool) error {
		done = true
		clean, cancel := context.WithTimeout(detached(ctx), cleanUpTimeout)
		defer cancel()
		if err := s.gone(); err != nil {
			return err
		}
		if undo {
			return lost(s.undo(clean, name))
		}
		_, err := s.run(clean, script{{sql: "release savepoint " + name}})
		return lost(err)
	}
	defer func() { // also when work panics
		if !done {
			_ = end(true) // what is wrong with the session shows in its end
		}
	}()
	err = work(s.tx)
	if err == nil && s.status() != 'E' {
		return end(false)
	}
	if err == nil {
		err = errAborted
	}
	if undone := end(true); undone != nil {
		return undone
	}
	return err
}

func (s *sqlSession) Commit(ctx context.Context) error {
	defer s.conn.Close()
	if err := s.gone(); err != nil {
		return errors.Join(err, s.rollback(ctx))
	}
	if s.status() == 'E' {
		return errors.Join(errAborted, s.rollback(ctx))
	}
	proof := script{{proofSQL("$1"), []any{s.mark}}}
	if _, err := s.run(ctx, proof); err != nil {
		if sqlState(err) == divisionByZero {
			err = errors.New("the transaction that took the lock ended before its work did; what came after it is " +
				"not committed")
		}
		return errors.Join(lost(err), s.rollback(ctx))
	}
	defer s.abandon()
	stop := context.AfterFunc(ctx, s.abandon)
	err := s.tx.Commit()
	stop()
	switch {
	case err == nil:
		return nil
	case errors.Is(err, sql.ErrTxDone):
		return errors.Join(lost(err), s.rollback(ctx))
	case sqlState(err) != "" && s.status() != 0:
		return errors.Join(err, s.rollback(ctx)) // a deferred constraint, say: nothing is committed
	}
	return fmt.Errorf("%w: the connection broke during COMMIT, and whether it took place is unknown: %w",
		dialects.ErrLost, err)
}

func (s *sqlSession) Rollback(ctx context.Context) error {
	defer s.conn.Close()
	if err := s.gone(); err != nil {
		return errors.Join(err, s.rollback(ctx))
	}
	return lost(s.rollback(ctx))
}

// rollback ends whatever transaction is open and brings the session's settings back. A connection
// on which that cannot be confirmed is closed.
func (s *sqlSession) rollback(ctx context.Context) error {
	if s.guarded && s.status() == 'I' { // as with session.rollback
		s.abandon()
		destroy(s.conn)
		return nil
	}
	err := s.restore(ctx)
	if s.tx != nil {
		defer s.abandon()
		defer context.AfterFunc(ctx, s.abandon)()
		if ended := s.tx.Rollback(); err == nil && !errors.Is(ended, sql.ErrTxDone) {
			err = ended
		}
	}
	if err == nil && s.status() != 'I' { // the transaction's handle was closed by the caller, the transaction was not
		_, err = s.run(ctx, script{{sql: "rollback"}})
	}
	if err != nil {
		destroy(s.conn)
	}
	return err
}

func (s *sqlSession) restore(ctx context.Context) error {
	if !s.guarded {
		return nil
	}
	return raw(s.conn, func(c *pgx.Conn) error {
		_, err := c.Exec(ctx, restoreSQL)
		return err
	})
}

// status is the transaction status that the server last reported, 0 on a closed connection.
func (s *sqlSession) status() (status byte) {
	_ = raw(s.conn, func(c *pgx.Conn) error {
		if !c.IsClosed() {
			status = c.PgConn().TxStatus()
		}
		return nil
	})
	return status
}

// gone is an error when the transaction that took the locks has visibly ended.
func (s *sqlSession) gone() error {
	switch s.status() {
	case 0:
		return fmt.Errorf("%w: its connection is closed", dialects.ErrLost)
	case 'I':
		return fmt.Errorf("%w: its transaction was ended by a COMMIT or ROLLBACK of its work", dialects.ErrLost)
	}
	return nil
}
