package postgres

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/identifier"
	"github.com/txlock/txlock/internal/locktable"
)

// fence is the texts by which tokens are drawn. A run of the server lasts until it crashes, or a
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
type fence struct{ token, draw, number string }

// serverSQL tells this run of this server from all others: by when the server was started, and by
// when its statistics began, which is anew after each crash, also of one of its processes. Before
// PostgreSQL 15 to ask for the latter takes milliseconds, and runs has been emptied. Any role may
// ask for both. A reset of the statistics costs an epoch.
const serverSQL = "array[pg_postmaster_start_time(), case when current_setting('server_version_num')::int >= 150000 " +
	"then pg_stat_get_bgwriter_stat_reset_time() end]"

// fenceOf makes them for a lock table of that name, which Find has made.
//
// The token is sent behind the statement that locks the rows. Within that, the server would
// evaluate it before the wait. It fails where the run has no epoch, or no count left, and where it
// is out of range.
func fenceOf(table string) fence {
	beside, _ := sqltext.Beside(table)
	epochs, runs, sequence := beside(locktable.Epochs), beside(locktable.Runs), beside(sqltext.Tokens)
	// Whether a row of runs is of this server. For an array somebody else's operator could fit
	// better.
	here := func(run string) string {
		return "(select server from " + epochs + " drawn where drawn.epoch = " + run +
			".epoch) operator(pg_catalog.=) " + serverSQL
	}
	// Lower levels do not wait for the disk, or not for synchronous standbys.
	alone := "set local synchronous_commit = on;\nlock table " + epochs + " in share row exclusive mode;\n"
	return fence{
		token: "select coalesce((select (epoch * " + strconv.Itoa(1<<fencing.CountBits) + " + count)::text " +
			"from (select epoch, nextval(" + sqltext.Literal(sequence) + ") - start as count from " + runs +
			" run where " + here("run") + ") drawn where count < " + strconv.Itoa(fencing.Spent) + "), (" +
			failSQL(fencing.ErrNoRun) + ")::text)",
		// A logical replica has the rows of its publisher, and not how far their numbers were
		// drawn.
		draw: alone + identifier.Qualified("insert into "+epochs+" (epoch) overriding system value select "+
			"coalesce(max(epoch), 0) + 1 from "+epochs+" returning epoch::text"),
		number: alone + identifier.Qualified("with run as (insert into "+runs+" as former select true, $1::bigint, "+
			"last_value - 1 from "+sequence+
			" where not exists (select from "+epochs+" where epoch > $1::bigint and begun) "+
			"on conflict (running) do update set epoch = excluded.epoch, start = excluded.start where "+
			"excluded.start - former.start >= "+strconv.Itoa(fencing.Spent-1)+" or ("+here("former")+
			") is not true returning epoch) update "+epochs+" set begun = true, server = "+serverSQL+
			" where epoch in (select epoch from run)"),
	}
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
