package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/label"
	"github.com/txlock/txlock/internal/locktable"
)

// A statement that waits has a snapshot. VACUUM keeps what was deleted since, and CREATE INDEX
// CONCURRENTLY waits for it; if the holder runs that, they wait in a circle that the server does
// not see. So a wait ends after maxWait, and begins again, at the end of the queue; with a lease of
// less than 12 s after five of them: where nobody goes on with a nested wait, its session is idle,
// and ends.
const maxWait, leasesToWait = time.Minute, 5

// dropSnapshot comes last in the lock of a session that then is idle. The server keeps the snapshot
// of the last statement until the next one; a SET has none. A heartbeat would be too late: who has
// begun to wait for the snapshot waits for the end of the transaction.
var dropSnapshot = server.Silent("set local txlock.idle = ''")

// how is the way of a lock.
type how byte

const (
	own      how = iota // it begins a transaction
	carrying            // and has statements of the caller's behind it
	joined              // it joins the locks of a session, in a savepoint that is released
	nested              // and in one that stays for work
	guest               // in a transaction of the caller's, in a savepoint that is released
)

// attempt is a lock as it is sent: the beginning of a transaction or a savepoint, the settings of
// the wait, the queue locks, the rows, and what travels with them.
//
// The row is the truth. The queue lock, an advisory lock that is taken before the row, is the
// queue. In PostgreSQL's row queue newcomers barge in between a commit and the wake-up of the first
// waiter (16 tight loops: 58 of 1600 out of order); an advisory lock is granted to the first waiter
// in the act of its release. Every session locks queue locks by number and then rows by value, so
// that no two block each other. They are statements of their own: a statement's snapshot is older
// than its wait, and would miss a row that came meanwhile. One row of our own, which nobody
// changes, is an exception: see rowsSQL.
type attempt struct {
	request           dialects.Request
	texts             *texts
	script            server.Script
	rows, token, look int           // where answers are; 0: nowhere
	again             time.Duration // how long it waits until it is to begin again; 0: it ends then
	sent              time.Time
}

// attemptOf is an attempt between what begins it and, if it has a text, what ends it. Mark is of a
// transaction of its own, with work; see markSetting.
func attemptOf(ctx context.Context, request dialects.Request, w how, mark string, first, last server.Statement) (
	a attempt, err error,
) {
	t, err := textsOf(request, w)
	if err != nil {
		return a, err
	}
	named, err := argsOf(request, t)
	if err != nil {
		return a, err
	}
	a = attempt{request: request, texts: t, script: append(make(server.Script, 0, 6), first), sent: time.Now()}
	add := func(s server.Statement) (at int) {
		if s.SQL == "" {
			return 0
		}
		a.script = append(a.script, s)
		return len(a.script) - 1
	}
	set, rows := server.Statement{SQL: t.set, Silent: true}, server.Statement{SQL: t.rows, Args: named}
	switch {
	case request.Work.TakesFree():
		rows.SQL = freeSQL(request, t)
	case t.anyOne:
		rows.Args = append(rows.Args, request.AnyOne)
	case request.Try:
		rows.Args = append(rows.Args, server.ArrayOf(queueLocks(request)))
	}
	switch shown := request.Label; {
	case w == own, w == carrying:
		set.Args = append(make([]any, 0, 5), label.Begin+shown, milliseconds(request.Lease), mark)
	case w == guest && !request.Try:
		set.Args = []any{label.Begin + shown}
	case request.Work.TakesFree(): // nested
		set = server.Silent(identifier.Qualified("select "+furtherSQL("$1")), shown)
	case w != guest && request.Try:
		rows.Args = append(rows.Args, shown)
	case w != guest:
		set.Args = []any{shown}
	}
	if !request.Try {
		limit, longest := interrupt.Limit(ctx, request), maxWait
		bounded := limit > 0
		if request.Lease > 0 {
			longest = min(maxWait, leasesToWait*request.Lease)
		}
		if !bounded || limit > longest {
			limit, a.again = longest, longest
		}
		set.Args = append(set.Args, milliseconds(limit), strconv.FormatBool(bounded))
	}
	add(set)
	if t.queue != "" {
		add(server.Silent(t.queue, server.ArrayOf(queueLocks(request))))
	}
	a.rows, a.token = add(rows), add(server.Statement{SQL: t.token})
	if request.Work.Looks() {
		a.script = append(a.script, scriptOf(*request.Work.Look)...)
		a.look = len(a.script) - 1
	}
	add(last)
	return a, nil
}

// The verdicts on a lock.
var (
	errAgain    = errors.New("the wait is to begin again")
	errSnapshot = fmt.Errorf("%w: the transaction's snapshot is older than the lock, so it would read stale data "+
		"under it; begin it at READ COMMITTED", dialects.ErrIsolation)

	// nonce tells a verdict of the server's from what somebody's value may say.
	nonce = rand.Text()
)

// failSQL casts a text to an integer. The server's error shows the text, and what comes behind, the
// release of the savepoint or COMMIT, is not reached. It must not know the text before the
// statement runs.
func failSQL(verdict error) string {
	return "concat('txlock: ', " + server.Literal(verdict.Error()+" "+nonce) + ")::int"
}

// judge says what an error means for the lock.
func (a attempt) judge(err error) error {
	switch state := server.State(err); {
	case state == server.InvalidText:
		for _, verdict := range []error{errSnapshot, locktable.ErrRows, fencing.ErrNoRun} {
			if strings.Contains(err.Error(), verdict.Error()+" "+nonce) {
				return verdict
			}
		}
	case state == server.LockNotAvailable && a.again > 0 && time.Since(a.sent) >= a.again:
		return errAgain
	case state == server.Serialization && a.request.Work.TakesFree(): // the first one is another's, and has moved
		return errAgain
	case state == server.Serialization && !a.request.Ours: // at READ COMMITTED it has no other cause
		return fmt.Errorf("%w: while the wait lasted, the row has moved to another partition; ask again: %w",
			dialects.ErrNotAcquired, err)
	}
	return server.Classify(err, a.request)
}

// read reads the answers. A try that missed has taken nothing.
func (a attempt) read(columns [][]string) (got dialects.Grant, err error) {
	rows := columns[a.rows]
	switch {
	case len(rows) == 0: // of permits, or of free rows
		return got, fmt.Errorf("%w: none is free", dialects.ErrNotAcquired)
	case a.request.Work.TakesFree():
		a.request.Work.Free.Found = rows
	case !a.texts.anyOne && rows[0] == "-1":
		return got, fmt.Errorf("%w: another session holds it or waits for it", dialects.ErrNotAcquired)
	case a.texts.anyOne:
		got.Row = rows[0]
	default:
		if n, err := strconv.Atoi(rows[0]); err != nil || n < len(a.request.Values) {
			return got, locktable.ErrRows
		}
	}
	if a.token > 0 {
		got.Token, err = strconv.ParseInt(columns[a.token][0], 10, 64)
	}
	if a.look > 0 {
		got.Answer = columns[a.look]
	}
	return got, err
}

// texts are the statements of a lock. They are constant, for prepared statements, and known: to put
// them together would take longer than to lock.
type texts struct {
	table, column, where    string // quoted
	set, queue, rows, token string // queue, token: empty where there is none
	anyOne, list            bool   // one free row is enough; rows are named by an array
}

// shape is what texts depend on.
type shape struct {
	table, column, fence      string
	slots, values             int
	ours, shared, anyOne, try bool
	how                       how
}

// known are texts, by their shapes. A program has some for each table and number of values.
var known = struct {
	sync.Mutex
	texts map[shape]*texts
}{texts: make(map[shape]*texts)}

const mostKnown = 1000

func textsOf(r dialects.Request, w how) (t *texts, err error) {
	s := shape{r.Table, r.Column, r.Fence, r.Slots, len(r.Values), r.Ours, r.Shared, r.AnyOne != "", r.Try, w}
	known.Lock()
	defer known.Unlock()
	if t = known.texts[s]; t != nil {
		return t, nil
	}
	t = &texts{set: settingsSQL(w, r.Try), anyOne: r.AnyOne != "" && r.Try}
	if t.table, err = server.QuoteTable(r.Table); err == nil {
		t.column, err = identifier.Quote(r.Column, '"', 1)
	}
	if err != nil {
		return nil, err
	}
	t.list = t.anyOne || len(r.Values) > 1
	t.where = " where " + t.column + " = any($1)"
	if !t.list { // the server plans an array anew each time
		t.where = " where " + t.column + " = $1"
	}
	if r.Slots > 0 {
		t.where += " and slots = " + strconv.Itoa(r.Slots)
	}
	if t.anyOne {
		t.rows = anyOneSQL(r, t)
	} else {
		t.rows = rowsSQL(r, t, w)
	}
	if !r.Try && !together(r) {
		t.queue = "select count(" + passSQL(r, "pg_advisory_xact_lock", "t") + ")" + each("$1")
	}
	if r.Fence != "" {
		t.token = fenceOf(r.Fence).token
	}
	for _, text := range []*string{&t.set, &t.queue, &t.rows, &t.token} {
		*text = identifier.Qualified(*text)
	}
	if len(known.texts) == mostKnown {
		clear(known.texts)
	}
	known.texts[s] = t
	return t, nil
}

// argsOf are the arguments that name the rows: one, or those of a condition of the caller's.
func argsOf(request dialects.Request, t *texts) (args []any, err error) {
	values := request.Values
	if request.Work.TakesFree() {
		values = request.Work.Free.Args
	}
	list := make([]string, len(values))
	for i, value := range values {
		list[i] = value.Text
		switch {
		case value.Binary:
			list[i] = fmt.Sprintf(`\x%x`, value.Text)
		case strings.ContainsRune(value.Text, 0) || !utf8.ValidString(value.Text):
			return nil, dialects.RefusedError{Err: fmt.Errorf("value %.100q for %s: text in PostgreSQL is valid UTF-8 "+
				"without NUL; give a []byte for a bytea column", value.Text, t.column)}
		}
		args = append(args, list[i])
	}
	if t.list {
		args = []any{server.ArrayOf(list)}
	}
	return args, nil
}

// milliseconds is a duration as settings take it, rounded up.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt((d+time.Millisecond-1).Milliseconds(), 10) + "ms"
}

// numberRun gives the server's run an epoch, unless it has one with counts left, on a connection of
// its own: that must be committed now. Of several sessions that try at once, one numbers it, and
// the epochs of the others are skipped. So is one when a run with a higher one has begun: the
// server has crashed since it was drawn, behind a pooler that keeps this connection.
//
// No COMMIT is interrupted: that would end its wait for a standby, and what is committed would be
// visible.
func (d *driver[Tx]) numberRun(ctx context.Context, patience time.Duration, table string) error {
	f := fenceOf(table)
	drawn, err := d.runAlone(ctx, patience, false, dialects.Query{SQL: f.draw, Table: table})
	if err == nil {
		_, err = d.runAlone(ctx, patience, false, dialects.Query{SQL: f.number, Args: []any{drawn[0]}, Table: table})
	}
	if err != nil {
		return fmt.Errorf("number the server's run of %s: %w", table, err)
	}
	return nil
}
