package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/locktable"
)

// A savepoint opens a script in a transaction that has more to lose. Each that is open has a name
// of its own: who comes back to one that was never set must not come back to another.
const inCallers = "txlock_wait"

func set(savepoint string) server.Statement {
	return server.Statement{SQL: "savepoint " + savepoint, Silent: true, Opens: true}
}

func release(savepoint string) server.Statement {
	return server.Statement{SQL: "release " + savepoint, Silent: true}
}

func (d *driver[Tx]) LockTx(ctx context.Context, tx Tx, request dialects.Request) error {
	l, err := d.in(ctx, tx)
	if err != nil {
		return err
	}
	return d.repeat(ctx, fencing.SecondConn, request, func() error {
		_, err := join(ctx, l, request, guest, inCallers)
		return err
	})
}

// in is the way to a transaction of the caller's, whose server is known to exclude.
func (d *driver[Tx]) in(ctx context.Context, tx Tx) (l client.Line, err error) {
	if l, err = d.pool.In(ctx, tx); err != nil {
		return l, err
	}
	clean, cancel := interrupt.Detached(ctx) // pgx closes the connection when ctx ends
	defer cancel()
	if err = d.identify(clean, l); server.Broken(err) && !errors.Is(err, dialects.ErrUnsafeEngine) {
		err = dialects.Lost(err)
	}
	return l, err
}

// early is how long nobody interrupts a script with a savepoint in front: a cancel before that is
// set would cost the transaction. On a busy machine one that begins with it might overtake it.
const early = 50 * time.Millisecond

// interrupted runs statements in a savepoint, and ends them on the server when ctx ends first. Told
// says that the server knows the deadline.
func interrupted(ctx context.Context, l client.Line, told bool, run func(context.Context) error) error {
	sent := time.Now()
	return interrupt.Await(ctx, told, interrupt.GuestPatience, func(ctx context.Context) error {
		time.Sleep(early - time.Since(sent))
		return l.Interrupt(ctx)
	}, l.Cut, run)
}

// join locks rows in an open transaction, which has more to lose than this lock: a savepoint keeps
// it safe from every error. That of nested work stays, and is undone or released with the work.
func join(ctx context.Context, l client.Line, request dialects.Request, w how, at string) (
	got dialects.Grant, err error,
) {
	last := release(at)
	if w == nested {
		last = server.Statement{}
	}
	a, err := attemptOf(ctx, request, w, "", set(at), last)
	if err != nil {
		return got, err
	}
	var columns [][]string
	failed := interrupted(ctx, l, !request.Try, func(ctx context.Context) (err error) {
		columns, err = l.Run(ctx, a.script)
		return err
	})
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	if failed == nil {
		if got, err = a.read(columns); err != nil && w == nested { // none of the rows is free
			err = cmp.Or(dialects.Lost(l.Exec(clean, "rollback to "+at+"; release "+at)), err)
		}
		return got, err
	}
	return got, undo(clean, l, at, request, failed, len(columns), a.judge(failed))
}

// undo undoes a script that began with a savepoint, and has failed behind so many statements. It
// returns what has become of the request.
func undo(ctx context.Context, l client.Line, at string, request dialects.Request, failed error, ran int,
	err error,
) error {
	switch state := server.State(failed); {
	case state == server.NoTransaction, server.Broken(failed):
		return dialects.Lost(err)
	case state == server.AbortedBefore, state == "" && ran == 0: // no savepoint is set
		return err
	}
	undone := l.Exec(ctx, "rollback to "+at)
	if undone == nil {
		err = explain(ctx, l, request, err)
		undone = l.Exec(ctx, "release "+at)
	}
	if undone != nil {
		return dialects.Lost(fmt.Errorf("%w (%v)", undone, err))
	}
	return err
}

// explain says what an error means of which the server can be asked more: which rows are missing,
// or whether it is a standby.
func explain(ctx context.Context, l client.Line, request dialects.Request, err error) error {
	switch state := server.State(err); {
	case errors.Is(err, locktable.ErrRows):
		t, _ := textsOf(request, own) // there was no error when the lock was sent
		named, _ := argsOf(request, t)
		exist := "select " + t.column + "::pg_catalog.text from " + t.table + t.where
		columns, failed := l.Run(ctx, server.Script{{SQL: exist, Args: named}})
		if failed != nil {
			return server.Classify(failed, request)
		}
		return locktable.MissingRows(request, columns[0])
	case errors.Is(err, dialects.ErrIsolation), state == server.ReadOnly, state == server.NotSupported:
		standby := identifier.Qualified("select coalesce(host(inet_server_addr()) || ':' || " +
			"inet_server_port()::text, 'on a socket of this machine') where pg_is_in_recovery()")
		columns, failed := l.Run(ctx, server.Script{{SQL: standby}})
		if failed == nil && len(columns[0]) > 0 {
			return fmt.Errorf("%w: the server %s is a standby, where a lock excludes nobody: connect to the primary, "+
				"with target_session_attrs=read-write say: %w", dialects.ErrUnsafeEngine, columns[0][0], err)
		}
	}
	return err
}

// Join implements dialects.Session. Work runs in the savepoint of its lock.
func (s *session[Tx]) Join(ctx context.Context, request dialects.Request, work func(Tx) error) (
	got dialects.Grant, err error,
) {
	if err = s.usable(); err != nil {
		return got, err
	}
	at := s.savepoints.Name()
	switch {
	case request.Work == nil:
		return s.lockMore(ctx, request, joined, at)
	case len(request.Values) > 0, request.Work.TakesFree():
		got, err = s.lockMore(ctx, request, nested, at)
	default:
		err = s.send(ctx, "savepoint "+at)
	}
	if err != nil {
		return got, err
	}
	if request.Work.IsExec() {
		work = func(Tx) (err error) {
			got.Affected, err = s.runAll(request.Work.Context, request.Work.Statements)
			return err
		}
	}
	err = s.savepoints.Run(func() error {
		if err := work(s.Tx()); err != nil {
			return err
		}
		return s.send(ctx, "release "+at)
	}, func(failed bool) error {
		if !failed {
			return nil
		}
		return s.send(ctx, "rollback to "+at+"; release "+at)
	})
	return got, err
}

// lockMore locks in a savepoint.
func (s *session[Tx]) lockMore(ctx context.Context, request dialects.Request, w how, at string) (
	got dialects.Grant, err error,
) {
	request.Lease = s.lease
	err = s.driver.repeat(ctx, fencing.SecondConn, request, func() error {
		got, err = join(ctx, s.Line, request, w, at)
		if errors.Is(err, errAgain) && s.renewable() {
			// A new snapshot is as old as the transaction, and no heartbeat comes beside a wait.
			clean, cancel := interrupt.Detached(ctx)
			defer cancel()
			if failed := s.renew(clean); failed != nil {
				return dialects.Lost(failed)
			}
		}
		return err
	})
	if err == nil && s.mark == "" {
		s.held = append(s.held, request)
	}
	return got, err
}

// send sends what must be sent also when ctx has ended. Pgx would close the connection.
func (s *session[Tx]) send(ctx context.Context, text string) error {
	if err := s.gone(); err != nil {
		return err
	}
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	err := s.Line.Exec(clean, text)
	if err != nil && server.State(err) == server.AbortedBefore {
		return server.ErrAborted
	}
	return dialects.Lost(err)
}
