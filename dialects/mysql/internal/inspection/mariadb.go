package inspection

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// renew has MariaDB make a new picture. A reading within 100 ms of another's gets the old one: so
// this begins a transaction, and reads until it sees the very statement that looks for it there.
// When others read all the time, the server makes none, and the old one has to do.
func (p *picture) renew(ctx context.Context) error {
	const looks, cached, spread = 4, 105 * time.Millisecond, 30 * time.Millisecond // so that two do not stay in step
	if !p.mariadb {
		return nil
	}
	if _, err := p.ask(ctx, "START TRANSACTION WITH CONSISTENT SNAPSHOT"); err != nil {
		return err
	}
	for look := range looks {
		interrupt.ClosedWithin(ctx.Done(), cached+rand.N(spread<<look))
		found, err := p.ask(ctx, fmt.Sprintf("SELECT 1 FROM information_schema.innodb_trx WHERE "+
			"trx_mysql_thread_id = CONNECTION_ID() AND LOCATE('look %d', trx_query) > 0", rand.Uint64()))
		if err != nil || len(found) > 0 {
			return err
		}
	}
	return nil
}

// named is a row that is looked for alone.
type named struct {
	ours
	row string
}

const (
	// probeMark is in the statement of a probe, and probeFor is for how long that waits: until the
	// views have been read, also if somebody else reads them.
	probeMark = sqltext.CommentMark + "probe"
	probeFor  = 600 * time.Millisecond
)

// probe finds the holders of what was named. MariaDB shows a row lock only while somebody waits for
// it: so those that are held are waited for, a few at a time, while the views are read. The holder
// of one that is held before and after that, and shown by no view, is unknown: there was no
// connection to wait on, say.
func (p *picture) probe(ctx context.Context, pool *client.Pool) error {
	const atOnce = 4 // each on a connection
	held, err := p.held(ctx)
	if err != nil || len(held) == 0 {
		return err
	}
	if err = p.read(ctx); err != nil { // what others wait for
		return err
	}
	held = slices.DeleteFunc(held, func(n named) bool { return isHeld(p.entries, p.entry(n)) })
	for some := range slices.Chunk(held, atOnce) {
		var probes sync.WaitGroup
		for _, n := range some {
			probes.Go(func() { n.await(ctx, pool) })
		}
		err := p.read(ctx)
		if probes.Wait(); err != nil {
			return err
		}
	}
	held, err = p.held(ctx)
	for _, n := range held {
		p.entries = append(p.entries, p.entry(n))
	}
	return err
}

// held are those that somebody has, and that are not shown yet. It takes the others for a moment.
func (p *picture) held(ctx context.Context) (held []named, err error) {
	for _, t := range p.tables {
		var rows []string
		for _, row := range t.only {
			if !isHeld(p.entries, p.entry(named{t, row})) {
				rows = append(rows, row)
			}
		}
		if len(rows) == 0 {
			continue
		}
		free, err := p.ask(ctx, sqltext.OnMariaDB(sqltext.SomeWait)+t.lockSQL(rows...)+sqltext.SkipLocked)
		if server.Number(err) == server.OnlyReads {
			return nil, nil // nobody locks there
		}
		if err == nil {
			_, err = p.ask(ctx, "ROLLBACK")
		}
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if !slices.ContainsFunc(free, func(line []string) bool { return line[0] == row }) {
				held = append(held, named{t, row})
			}
		}
	}
	return held, nil
}

// lockSQL locks rows by the index: else those of others would be locked on the way.
func (t ours) lockSQL(rows ...string) string {
	return fmt.Sprintf("SELECT %s */ %s FROM %s FORCE INDEX (PRIMARY) WHERE %[2]s IN (%[4]s) FOR UPDATE", probeMark,
		t.column, t.quoted, strings.Join(rows, ", "))
}

// await waits for the row on a connection of its own, and gives it back at once. The server limits
// the wait: nothing need be interrupted.
func (n named) await(ctx context.Context, pool *client.Pool) {
	brief, cancel := context.WithTimeout(ctx, probeFor)
	defer cancel()
	_ = pool.With(brief, func(conn *sql.Conn) error { // without a connection, nobody waits
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeFor+interrupt.CleanUp)
		defer cancel()
		end, _ := brief.Deadline()
		limits := sqltext.OnMariaDB(sqltext.SomeWait, fmt.Sprintf("max_statement_time=%.3f",
			max(time.Until(end), time.Millisecond).Seconds()))
		_, err := server.Grid(clean, conn, limits+n.lockSQL(n.row))
		return err
	})
}

// entry is the row, held by nobody knows whom.
func (p *picture) entry(n named) dialects.Entry {
	e := p.rows[place{n.Table, primary, n.row}]
	e.Value = n.row
	return e
}

// isHeld tells whether one of entries holds the row of e.
func isHeld(entries []dialects.Entry, e dialects.Entry) bool {
	return slices.ContainsFunc(entries, func(h dialects.Entry) bool {
		return !h.Waits && h.Kind == e.Kind && h.Table == e.Table && h.Column == e.Column && h.Value == e.Value
	})
}
