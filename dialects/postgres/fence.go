package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/locktable"
)

// fence is what tokens are drawn from. A run of the server lasts until it crashes, or until a
// standby is promoted. Counts come from a sequence.
//
// A rollback does not undo nextval. But the server writes it to the log without waiting for the
// disk: after a crash the sequence may give out counts again. So runs has the epoch of this run and
// the count at which it began, and epochs has the server whose run it is: see serverSQL. On any
// other no token comes. The next holder draws an epoch from epochs, an ordinary table, in a
// transaction that waits for the disk and for synchronous standbys. Then it writes it to runs in
// another: in one whose wait for a standby was broken off, it would be visible all the same.
//
// Runs is unlogged: a crash empties it, and the promotion of a standby (manual, CREATE TABLE,
// UNLOGGED). Not so on Aurora, where such tables outlive both.
type fence struct{ epochs, runs, sequence string }

// serverSQL tells this run of this server from all others: by when the server was started, and by
// when its statistics began, which is anew after each crash, also of one of its processes. Before
// PostgreSQL 15 to ask for the latter takes milliseconds, and runs has been emptied. Any role may
// ask for both. A reset of the statistics costs an epoch.
const serverSQL = "array[pg_postmaster_start_time(), case when current_setting('server_version_num')::int >= 150000 " +
	"then pg_stat_get_bgwriter_stat_reset_time() end]"

// fenceOf derives the quoted names from the lock table's, which Find has made.
func fenceOf(table string) fence {
	beside, _ := sqltext.Beside(table)
	return fence{epochs: beside(locktable.Epochs), runs: beside(locktable.Runs), sequence: beside(sqltext.Tokens)}
}

// here is the condition that a row of runs is of this server. For an array somebody else's
// operator could fit better.
func (f fence) here(run string) string {
	return "(select server from " + f.epochs + " drawn where drawn.epoch = " + run +
		".epoch) operator(pg_catalog.=) " + serverSQL
}

// tokenSQL is sent behind the statement that locks the rows. Within that, the server would evaluate
// it before the wait. It fails where the run has no epoch, or no count left, and where a token is
// out of range.
func tokenSQL(table string) string {
	f := fenceOf(table)
	return "select coalesce((select (epoch * " + strconv.Itoa(1<<fencing.CountBits) + " + count)::text " +
		"from (select epoch, nextval(" + sqltext.Literal(f.sequence) + ") - start as count from " + f.runs +
		" run where " + f.here("run") + ") drawn where count < " + strconv.Itoa(fencing.Spent) + "), (" +
		failSQL(fencing.ErrNoRun) + ")::text)"
}

// numberRun gives the server's run an epoch, unless it has one with counts left, on a connection of
// its own: that must be committed now. Of several sessions that try at once, one numbers it, and
// the epochs of the others are skipped. So is one when a run with a higher one has begun: the
// server has crashed since it was drawn, behind a pooler that keeps this connection.
func (d *driver[Tx]) numberRun(ctx context.Context, patience time.Duration, table string) error {
	f := fenceOf(table)
	// Lower levels do not wait for the disk, or not for synchronous standbys.
	durable := sqltext.Silent("set local synchronous_commit = on")
	alone := sqltext.Silent("lock table " + f.epochs + " in share row exclusive mode")
	// A logical replica has the rows of its publisher, but not how far their numbers were drawn.
	draw := sqltext.With(identifier.Qualified("insert into " + f.epochs + " (epoch) overriding system value select " +
		"coalesce(max(epoch), 0) + 1 from " + f.epochs + " returning epoch::text"))
	begin := identifier.Qualified("with run as (insert into " + f.runs + " as former select true, $1::bigint, " +
		"last_value - 1 from " + f.sequence +
		" where not exists (select from " + f.epochs + " where epoch > $1::bigint and begun) " +
		"on conflict (running) do update set epoch = excluded.epoch, start = excluded.start where " +
		"excluded.start - former.start >= " + strconv.Itoa(fencing.Spent-1) + " or (" + f.here("former") +
		") is not true returning epoch) update " + f.epochs + " set begun = true, server = " + serverSQL +
		" where epoch in (select epoch from run)")
	return d.within(ctx, patience, func(q client.Line) error {
		drawn, err := q.Run(ctx, sqltext.Script{client.Begin, durable, alone, draw, client.Commit})
		if err == nil {
			number := sqltext.Silent(begin, drawn[3][0])
			_, err = q.Run(ctx, sqltext.Script{client.Begin, durable, alone, number, client.Commit})
		}
		if err != nil {
			err = fmt.Errorf("number the server's run in %s: %w", f.epochs, err)
		}
		return err
	})
}
