package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

// lookFirst is what people write by hand for the other kinds of locks: each looks whether it may,
// and then notes that it does. Between the two, others look. So readers and writers meet, there are
// more holders than permits, and work is done twice.
type lookFirst struct{ db *sql.DB }

var errHeld = errors.New("held by another")

func (l *lookFirst) verbs() []verb { return []verb{verbDo, verbRead, verbPermit, verbOnce} }
func (l *lookFirst) close() error  { return l.db.Close() }

func (l *lookFirst) run(ctx context.Context, o *operation, random *rand.Rand, tell func()) {
	err := l.await(ctx, o)
	if err != nil {
		o.Outcome, o.Error, o.Expected = missed, err.Error(), errors.Is(err, errHeld)
		return
	}
	if o.Verb == verbOnce && !o.Ran {
		o.Outcome = done
		return
	}
	time.Sleep(time.Millisecond + time.Duration(random.Int64N(int64(3*time.Millisecond)))) // a slow network
	if err = l.note(ctx, o); err == nil {
		o.Granted = now()
		tell()
		err = l.work(ctx, o)
		o.Released = now()
		err = errors.Join(err, l.leave(ctx, o))
	}
	o.Outcome = done
	if err != nil {
		o.Outcome, o.Error = unknown, err.Error()
	}
}

// await looks until the operation may go on. Work that was done before is not run again.
func (l *lookFirst) await(ctx context.Context, o *operation) error {
	if o.Verb != verbOnce && !o.Verb.permits() {
		o.Keys = o.Keys[:1]
	}
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(2 * time.Millisecond) {
		var found int
		err := l.db.QueryRowContext(ctx, l.lookSQL(o)).Scan(&found)
		switch {
		case err != nil:
			return err
		case o.Verb == verbOnce:
			o.Ran = found == 0
			return nil
		case o.Verb.permits() && found < permits:
			o.Permit = found
			o.Keys = []int{permitKey(o.Keys[0]-semaphoreKey(0), found), o.Keys[0]}
			return nil
		case !o.Verb.permits() && found == 0:
			return nil
		}
	}
	return errHeld
}

func (l *lookFirst) lookSQL(o *operation) string {
	switch {
	case o.Verb == verbOnce:
		return fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE k = -%d", inside, o.Work)
	case o.Verb == verbRead:
		return fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE k = %d AND writes = 1", inside, o.Keys[0])
	}
	return fmt.Sprintf("SELECT COUNT(*) FROM %s WHERE k = %d", inside, o.Keys[0])
}

// note says that the operation is inside, or that its work was done. Work that is to be done once
// gets its marker when it is done.
func (l *lookFirst) note(ctx context.Context, o *operation) error {
	if o.Verb == verbOnce {
		return nil
	}
	writes := 0
	if o.Verb == verbDo {
		writes = 1
	}
	_, err := l.db.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s (k, operation, writes) VALUES (%d, %d, %d)", inside,
		o.Keys[len(o.Keys)-1], int64(o.ID), writes))
	return err
}

func (l *lookFirst) leave(ctx context.Context, o *operation) error {
	query := fmt.Sprintf("DELETE FROM %s WHERE operation = %d", inside, int64(o.ID))
	if o.Verb == verbOnce {
		query = fmt.Sprintf("INSERT INTO %s (k, operation, writes) VALUES (-%d, 0, 0)", inside, o.Work)
	}
	_, err := l.db.ExecContext(ctx, query)
	return err
}

func (l *lookFirst) work(ctx context.Context, o *operation) error {
	switch o.Verb {
	case verbOnce:
		_, err := l.db.ExecContext(ctx, doneSQL(o))
		return err
	case verbPermit:
		time.Sleep(5 * time.Millisecond)
		return nil
	}
	first, err := l.count(ctx, o.Keys[0])
	if err != nil {
		return err
	}
	o.Reads = []int64{first}
	time.Sleep(5 * time.Millisecond)
	if o.Verb == verbRead {
		second, err := l.count(ctx, o.Keys[0])
		o.Again = []int64{second}
		return err
	}
	for _, query := range incrementSQL(o, o.Keys[0], first) {
		if _, err := l.db.ExecContext(ctx, query); err != nil {
			return err
		}
	}
	return nil
}

func (l *lookFirst) count(ctx context.Context, key int) (value int64, err error) {
	err = l.db.QueryRowContext(ctx, counterSQL(key)).Scan(&value)
	return value, err
}
