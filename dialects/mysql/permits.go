package mysql

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// The head of the queue holds a GET_LOCK of the server's. The wait for it has no transaction, and
// the session can give it back while its own goes on. It outlives errors and rollbacks, so it is
// given back on every way out. Exclusion does not depend on it: the row's lock is the truth.

const (
	// lookEvery is how long the head waits for one permit before it tries all.
	lookEvery = 25 * time.Millisecond
	// headRests is how often a head of ours ends its transaction, which holds nothing, but holds
	// back purge on MariaDB.
	headRests = time.Second
	// triesForHead is how often a try asks for the queue: one that finds a permit at once has it
	// for a moment.
	triesForHead = 3
)

// taking is the taking of a permit.
type taking struct {
	driver *Driver
	place
	request dialects.Request
	permit  *dialects.Permit
	awaited int    // the permit that the last wait was for
	table   string // quoted
	locks   string // the result of a statement that locks
	comment string
}

// takePermit takes a permit for request. Front are statements in front of that.
func (d *Driver) takePermit(ctx context.Context, at place, request dialects.Request, front []string) (
	got dialects.Grant, err error,
) {
	t := &taking{driver: d, place: at, request: request, permit: request.Permit, locks: "p.id"}
	if t.table, err = sqltext.QuoteTable(request.Table); err != nil {
		return got, err
	}
	if request.Fence != "" {
		f, err := fenceOf(request.Fence)
		if err != nil {
			return got, err
		}
		t.locks = f.counted(t.locks)
	}
	t.comment = sqltext.Comment(labelOf(request), "")
	locked, err := t.take(ctx, front)
	if err != nil {
		if kept := t.leaveQueue(ctx); kept != nil {
			err = errors.Join(err, kept)
		}
		return got, server.Classify(err, request)
	}
	return t.granted(locked)
}

// take returns what a statement that locks returned.
func (t *taking) take(ctx context.Context, front []string) (locked string, err error) {
	if t.permit.Held >= 0 { // by this transaction, so it asks nobody
		held, err := t.send(ctx, t.anySQL("", []string{t.permit.Rows[t.permit.Held]}, ""))
		if err != nil || len(held) > 0 {
			return strings.Join(held, ""), err
		}
	}
	for tries := 1; ; tries++ {
		head, locked, err := t.probe(ctx, front)
		switch {
		case err != nil || locked != "":
			return locked, err
		case !t.request.Try:
			return t.await(ctx, head)
		case head || tries == triesForHead:
			return "", t.missed(ctx)
		}
		front = nil
		if err := pause(ctx, time.Millisecond); err != nil {
			return "", err
		}
	}
}

// missed is why a try has failed. In a transaction of the caller's it looks no further: a plain
// SELECT would take the snapshot.
func (t *taking) missed(ctx context.Context) error {
	if t.role == owner {
		rows, err := t.send(ctx, fmt.Sprintf("SELECT 1 FROM %s AS p WHERE p.id = %s AND %s", t.table, t.permit.Rows[0],
			t.ours()))
		if err == nil && len(rows) == 0 {
			err = t.gone()
		}
		if err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: no permit is free, or another session waits for one", dialects.ErrNotAcquired)
}

func (t *taking) gone() error {
	return fmt.Errorf("%w: the permits of semaphore %s are others", dialects.ErrNoRow, t.request.Values[0].Text)
}

// ours is the condition that a row is the semaphore's: the table may have been made anew.
func (t *taking) ours() string {
	name, _ := sqltext.Literal(dialects.Value{Text: t.request.Values[0].Text}) // it is ASCII
	return "p.hash = " + name
}

// anySQL locks one of rows that nobody holds, and no other. The list comes first in the join, so
// that each row is looked up by its key, and the LIMIT ends the looking. At REPEATABLE READ a range
// would lock the gaps as well. By the other index, MariaDB would lock more than it returns. MySQL
// wants to know that the list is not to be locked.
func (t *taking) anySQL(into string, rows []string, condition string) string {
	list := "[" + strings.Join(rows, ",") + "]"
	return sqltext.OnMariaDB(sqltext.SomeWait) + "SELECT " + t.comment + t.locks + into + " FROM JSON_TABLE('" + list +
		"', '$[*]' COLUMNS (id INT PATH '$')) AS list STRAIGHT_JOIN " + t.table +
		" AS p FORCE INDEX (PRIMARY) ON p.id = list.id WHERE " +
		condition + t.ours() + " LIMIT 1 FOR UPDATE /*!80001 OF p */" + sqltext.SkipLocked
}

// oneSQL waits for a row as long as the head does.
func (t *taking) oneSQL(row string) string {
	prefix, hint := limitSQL(lookEvery)
	return fmt.Sprintf("%sSELECT %s%s%s FROM %s AS p FORCE INDEX (PRIMARY) WHERE p.id = %s AND %s FOR UPDATE", prefix,
		hint, t.comment, t.locks, t.table, row, t.ours())
}

func (t *taking) unqueueSQL() string { return "DO RELEASE_LOCK('" + t.permit.Queue + "')" }

// showSQL shows the lock in the session's variable, if the permit was taken.
func (t *taking) showSQL(condition string) string {
	value := t.driver.valueOf(labelOf(t.request), t.role)
	if value == "" {
		return ""
	}
	if condition != "" {
		value = "IF(" + condition + ", " + value + ", @" + sqltext.Variable + ")"
	}
	return "SET @" + sqltext.Variable + " = " + value
}

// probe takes a free permit, unless somebody is in the queue. Where several statements can travel
// together, it is one trip. Whoever is to wait keeps the head of the queue.
func (t *taking) probe(ctx context.Context, front []string) (head bool, locked string, err error) {
	ask := "GET_LOCK('" + t.permit.Queue + "', 0)"
	if !t.Several {
		asked, err := t.send(ctx, append(front, "SELECT "+ask)...)
		if err != nil || asked[0] != "1" {
			return false, "", err
		}
		rows, err := t.send(ctx, t.anySQL("", t.permit.Rows, ""))
		if err == nil && (len(rows) > 0 || t.request.Try) {
			_, err = t.send(ctx, t.unqueueSQL())
		}
		return true, strings.Join(rows, ""), err
	}
	const got = "@txlock_permit IS NOT NULL"
	unqueue := t.unqueueSQL()
	if !t.request.Try {
		unqueue = strings.Replace(unqueue, "DO RELEASE", "DO "+got+" AND RELEASE", 1)
	}
	answer, err := t.send(ctx, append(front, "SET @txlock_permit = NULL, @txlock_head = "+ask,
		t.anySQL(" INTO @txlock_permit", t.permit.Rows, "@txlock_head = 1 AND "), unqueue, t.showSQL(got),
		"SELECT CONCAT_WS(' ', COALESCE(@txlock_head, 0), @txlock_permit)",
		"SET @txlock_permit = NULL, @txlock_head = NULL")...)
	if err != nil {
		return false, "", err
	}
	first, locked, _ := strings.Cut(answer[0], " ")
	return first == "1", locked, nil
}

// await waits in the queue, unless the session is its head, and then for a permit.
func (t *taking) await(ctx context.Context, head bool) (locked string, err error) {
	if !head {
		if err := t.queue(ctx); err != nil {
			return "", err
		}
	}
	rested := time.Now()
	for {
		rows, err := t.send(ctx, t.anySQL("", t.inTurn(), ""))
		if err == nil && len(rows) > 0 {
			_, err = t.send(ctx, t.unqueueSQL(), t.showLater())
			return rows[0], err
		}
		if err == nil {
			err = waitEnded(ctx)
		}
		if err == nil && t.role == owner && time.Since(rested) > headRests {
			err, rested = t.rest(ctx), time.Now()
		}
		if err == nil {
			rows, err = t.pass(ctx)
		}
		if err != nil || len(rows) > 0 {
			return strings.Join(rows, ""), err
		}
	}
}

// showLater is for a statement that follows the lock, where it may.
func (t *taking) showLater() string {
	if !t.Several {
		return ""
	}
	return t.showSQL("")
}

// queue waits for the head of the queue. The wait ends like any other.
func (t *taking) queue(ctx context.Context) error {
	limit, told, ours := t.driver.limitOf(ctx, t.place, t.request)
	tag := client.NewTag()
	prefix, hint := limitSQL(limit)
	query := prefix + "SELECT " + hint + sqltext.Comment(labelOf(t.request), tag) + "GET_LOCK('" + t.permit.Queue +
		"', 100000000)"
	var granted []string
	err := t.driver.pool.Await(ctx, told, tag, t.interruptible(), t.cut, func(ctx context.Context) (err error) {
		granted, err = t.Ask(ctx, query)
		return err
	})
	unheard := err == nil && granted[0] != "1" // MariaDB has no error for the end of this wait
	overlong := unheard || server.Number(err) == server.StatementTimeout || server.Number(err) == server.QueryTimeout
	switch {
	case overlong && ours && !ended(ctx):
		return errPatience
	case unheard:
		if limit == 0 && !ended(ctx) { // by max_statement_time, perhaps: see cutShort
			t.driver.limited.Store(true)
			return t.queue(ctx)
		}
		err = fmt.Errorf("%w: the wait in the queue was ended", dialects.ErrNotAcquired)
	}
	return err
}

// inTurn are the rows, of which the one that was waited for comes first. When it came free in the
// moment in which that wait ended, the session has it in spite of the error, and takes no other.
func (t *taking) inTurn() []string {
	return slices.Concat(t.permit.Rows[t.awaited:], t.permit.Rows[:t.awaited])
}

// pass waits for a moment, at one of the permits. A transaction that holds other locks does not
// wait for a row: InnoDB would see a deadlock where another permit comes free.
func (t *taking) pass(ctx context.Context) (rows []string, err error) {
	if t.role != owner {
		return nil, pause(ctx, lookEvery)
	}
	t.awaited = rand.IntN(len(t.permit.Rows))
	rows, err = t.send(ctx, t.oneSQL(t.permit.Rows[t.awaited]), t.unqueueSQL(), t.showLater())
	switch server.Number(err) {
	case server.QueryTimeout, server.StatementTimeout:
		return nil, waitEnded(ctx)
	}
	switch {
	case err != nil:
		return nil, err
	case len(rows) == 0:
		return nil, t.gone()
	}
	return rows, nil
}

// rest ends the transaction, which holds nothing. The next statement begins another.
func (t *taking) rest(ctx context.Context) error {
	save := ""
	if t.request.Work { // which it was begun with
		save = client.Save
	}
	_, err := t.send(ctx, "ROLLBACK", save)
	return err
}

// send runs statements that are over at once. The end of ctx leaves them alone: the client library
// would close the connection.
func (t *taking) send(ctx context.Context, statements ...string) (column []string, err error) {
	err = interrupt.Await(ctx, false, t.interruptible(), func(context.Context) error { return nil }, t.cut,
		func(ctx context.Context) (err error) {
			column, err = t.Ask(ctx, statements...)
			return err
		})
	return column, err
}

// errHeadKept occurs when the head of a queue may still be the session's.
var errHeadKept = errors.New("the head of a semaphore's queue was not given back: end this connection")

// leaveQueue gives the head of the queue back, whether the session has it or not.
func (t *taking) leaveQueue(ctx context.Context) (err error) {
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	for range 3 { // somebody may interrupt it, as the statement before
		if _, err = t.ExecContext(clean, t.unqueueSQL()); err == nil {
			return nil
		}
	}
	return fmt.Errorf("%w: %w", errHeadKept, err)
}

// granted reads which permit was taken, and the token.
func (t *taking) granted(locked string) (got dialects.Grant, err error) {
	row, _, _ := strings.Cut(locked, " ")
	got.Permit, err = t.permit.Taken(row)
	if err == nil && t.request.Fence != "" {
		got.Token, err = tokenOf(locked)
	}
	return got, err
}

// waitEnded is an error when ctx has ended.
func waitEnded(ctx context.Context) error {
	if !ended(ctx) {
		return nil
	}
	return fmt.Errorf("%w: no permit came free in time", dialects.ErrNotAcquired)
}

// pause waits for d, or for the end of ctx.
func pause(ctx context.Context, d time.Duration) error {
	if interrupt.ClosedWithin(ctx.Done(), d) {
		return waitEnded(ctx)
	}
	return nil
}
