package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// A permit is an advisory lock of the transaction, with the numbers of the table and of the row. It
// writes nothing and has no transaction number, so nothing of it needs to be renewed.
//
// The head of the queue has an advisory lock too: its number is that of permit 0, but negative. The
// session has it for itself, apart from the transaction, so that it can give it back in the moment
// in which it has a permit, and wakes the next head. Such a lock outlives errors and rollbacks. So
// each statement that takes it gives it back, and where one fails, the connection of a session of
// ours is closed. In a transaction that has more to lose, unqueueSQL gives back what may be left.

// takenSetting lists the permits of the transaction. The rollback to a savepoint takes it back, as
// it releases the locks.
const takenSetting = "txlock.taken"

// Answers of probeSQL besides the number of a row.
const (
	gotHead    = "head" // but no permit is free
	queueTaken = "busy"
	unsuitable = "unsuitable" // transaction; see primarySQL and errSnapshot
	otherRows  = "others"
)

// taken notes a permit of the transaction. Two lock tables may have rows of one number.
func taken(table, row string) string {
	return "set_config('" + takenSetting + "', concat_ws(' ', nullif(current_setting('" + takenSetting +
		"', true), ''), concat(" + sqltext.NumberOf(table) + ", ':', " + row + ")), true)"
}

// probeSQL takes a free permit, unless somebody is in the queue. $1 is the semaphore, $2 has the
// rows. An unsuitable transaction comes before rows that are missing: its snapshot may be older
// than they are. A try asks for the queue again: one that finds a permit at once has the queue for
// some microseconds.
func probeSQL(table string, as role, try bool) string {
	quoted, _ := sqltext.QuoteTable(table)
	number := sqltext.NumberOf(table)
	queue := number + ", -($2::int[])[1]"
	cases := ""
	if as == foreign {
		cases = "when not (" + isolationSQL + " and " + primarySQL + ") then '" + unsuitable + "' "
	}
	ask := "when pg_try_advisory_lock(" + queue + ") then '" + gotHead + "' "
	cases += "when own.id is null then '" + otherRows + "' " + ask
	if try {
		cases += strings.Repeat("when pg_sleep(0.001) is null then '' "+ask, 3)
	}
	state := "case " + cases + "else '" + queueTaken + "' end"
	if as != owner {
		state = "coalesce((select n::text from unnest($2::int[]) n where concat(" + number + ", ':', n) = " +
			"any(string_to_array(current_setting('" + takenSetting + "', true), ' ')) limit 1), " + state + ")"
	}
	return "select coalesce(p.n::text, head.state), " +
		"case when p.n is not null then " + taken(table, "p.n") + " end, " +
		"case when head.state = '" + gotHead + "' then pg_advisory_unlock(" + queue + ") end " +
		"from (select " + state + " as state from (select) one " +
		"left join " + quoted + " own on own.id = ($2::int[])[1] and own.hash = $1) head " +
		"left join lateral (select n from unnest($2::int[]) n where head.state = '" + gotHead + "' " +
		"and pg_try_advisory_xact_lock(" + number + ", n) limit 1) p on true"
}

// The settings by which queueSQL gets its arguments, and answers: the number of a row, or why the
// wait has ended without one. A DO has neither.
const (
	rowsSetting   = "txlock.permits"
	limitSetting  = "txlock.limit"
	answerSetting = "txlock.permit"
)

// lookEveryMs is how long the head waits for one permit before it tries all.
const lookEveryMs = 20

// queueSQL waits in the queue, and at its head for a permit. No time limit of its own makes an
// ERROR in the server's log: PL/pgSQL catches it. Neither does the cancel of the wait.
func queueSQL(table string) string {
	number := sqltext.NumberOf(table)
	return strings.NewReplacer("@table", number, "@unqueue", unqueueSQL(number, "-numbers[1]"),
		"@taken", taken(table, "got")).Replace(`do $txlock$
declare
	numbers int[] := current_setting('` + rowsSetting + `')::int[];
	kept text := current_setting('lock_timeout');
	until timestamptz := clock_timestamp() + least(nullif(kept, '0')::interval,
		nullif(current_setting('` + limitSetting + `'), '')::interval);
	got int;
	said text;
begin
	begin
		if until is not null then
			perform set_config('lock_timeout', concat(greatest(1,
				ceil(extract(epoch from until - clock_timestamp()) * 1000::numeric)::bigint), 'ms'), true);
		end if;
		perform pg_advisory_lock(@table, -numbers[1]);
		loop
			got := (select n from unnest(numbers) n where pg_try_advisory_xact_lock(@table, n) limit 1);
			exit when got is not null or clock_timestamp() >= until;
			begin
				perform set_config('lock_timeout', '` + strconv.Itoa(lookEveryMs) + `ms', true);
				got := numbers[1 + floor(random() * cardinality(numbers)::float8)::int];
				perform pg_advisory_xact_lock(@table, got);
				exit;
			exception when lock_not_available then
				got := null;
			end;
		end loop;
		perform pg_advisory_unlock(@table, -numbers[1]);
	exception
	when lock_not_available or query_canceled then
		perform @unqueue;
		got := null;
		said := sqlerrm;
	when others then
		perform @unqueue;
		raise;
	end;
	if got is not null then
		perform @taken;
	end if;
	perform set_config('lock_timeout', kept, true),
		set_config('` + answerSetting + `', coalesce(got::text, concat('none ', said)), true);
end $txlock$`)
}

// unqueueSQL gives the head of the queue back, if the session has it. It is without the SELECT.
func unqueueSQL(table, queue string) string {
	return "pg_advisory_unlock(" + table + ", " + queue + ") from pg_locks where locktype = 'advisory' and granted " +
		"and pid = pg_backend_pid() and objsubid = 2 and classid = " + table + "::oid and objid = (" + queue +
		")::oid and " + sqltext.InThisDatabase
}

// takePermit takes a permit for request. Send sends the first script: for who has more to lose it
// begins with a savepoint. Unsure says that the session may still have the head of the queue.
func (q querier) takePermit(ctx context.Context, request dialects.Request, on terms,
	send func(context.Context, plan) ([][]string, error),
) (got dialects.Grant, unsure bool, err error) {
	rows := sqltext.ArrayOf(request.Permit.Rows)
	p := newPlan()
	if on.as != owner {
		p.add(client.WaitSavepoint)
	}
	if on.as != foreign { // who does not wait
		set, _ := settingsOf(request, on)
		p.add(set)
	}
	p.rows = p.add(sqltext.With(probeSQL(request.Table, on.as, request.Try), request.Values[0].Text, rows))
	if err := p.finishPermit(request, on); err != nil {
		return got, false, err
	}
	var columns [][]string
	err = q.interrupted(ctx, false, on.as, func(ctx context.Context) (err error) {
		columns, err = send(ctx, p)
		return err
	})
	if err != nil {
		return got, true, server.Classify(err, request)
	}
	row, err := probed(request, columns[p.rows])
	if err == nil && row == "" && request.Try {
		err = fmt.Errorf("%w: no permit is free, or another session waits for one", dialects.ErrNotAcquired)
	}
	if err == nil && row == "" {
		return q.awaitPermit(ctx, request, on)
	}
	if err == nil {
		got, err = p.granted(request, row, columns)
	}
	return got, false, err
}

// probed is the row that probeSQL took, or empty.
func probed(request dialects.Request, answer []string) (row string, err error) {
	switch answer[0] {
	case otherRows:
		return "", fmt.Errorf("%w: the permits of semaphore %s are others", dialects.ErrNoRow, request.Values[0].Text)
	case unsuitable:
		return "", errSnapshot
	case gotHead, queueTaken:
		return "", nil
	}
	return answer[0], nil
}

// awaitPermit waits in the queue. The wait may give way, like any other.
func (q querier) awaitPermit(ctx context.Context, request dialects.Request, on terms) (
	got dialects.Grant, unsure bool, err error,
) {
	limit, told := limitOf(ctx, request, on.as)
	within := ""
	if limit > 0 {
		within = sqltext.Milliseconds(limit)
	}
	p := newPlan()
	var restore sqltext.Statement
	if on.as == foreign {
		var set sqltext.Statement
		set, restore = settingsOf(request, on)
		p.add(set)
	}
	p.add(sqltext.With("select "+sqltext.Set(rowsSetting, "$1")+", "+sqltext.Set(limitSetting, "$2"),
		sqltext.ArrayOf(request.Permit.Rows), within))
	p.add(sqltext.Silent(queueSQL(request.Table)))
	note, args := granted(request, on.as, "$1")
	p.rows = p.add(sqltext.With("select current_setting('"+answerSetting+"'), "+note, args...))
	p.add(restore)
	if err := p.finishPermit(request, on); err != nil {
		return got, false, err
	}
	begun := time.Now()
	columns, asked, err := q.wait(ctx, request, told, on.as, func(ctx context.Context) ([][]string, error) {
		return q.Run(ctx, p.Script)
	})
	if asked && server.State(err) == server.QueryCanceled && ctx.Err() == nil {
		return got, true, errAgain
	}
	if err != nil {
		return got, true, server.Classify(err, request)
	}
	if reason, ended := strings.CutPrefix(columns[p.rows][0], "none"); ended {
		overlong := limit > 0 && !told && time.Since(begun) >= limit
		if (asked || overlong) && ctx.Err() == nil {
			return got, false, errAgain
		}
		return got, false, fmt.Errorf("%w: no permit came free in time%s", dialects.ErrNotAcquired, reasonOf(reason))
	}
	got, err = p.granted(request, columns[p.rows][0], columns)
	return got, false, err
}

func reasonOf(said string) string {
	if said = strings.TrimSpace(said); said != "" {
		return ": " + said
	}
	return ""
}

// finishPermit adds what comes behind a permit.
func (p *plan) finishPermit(request dialects.Request, on terms) error {
	if request.Fence != "" {
		fence, err := fenceOf(request.Fence)
		if err != nil {
			return err
		}
		p.token = p.add(fence.token())
	}
	if on.as == owner && on.mark == "" {
		p.add(dropSnapshot)
	}
	return nil
}

// granted reads which permit was taken, and the token.
func (p *plan) granted(request dialects.Request, row string, columns [][]string) (g dialects.Grant, err error) {
	g.Permit, err = request.Permit.Taken(row)
	if err == nil && request.Fence != "" {
		g.Token, err = tokenOf(columns[p.token])
	}
	return g, err
}

// unqueue makes sure that the session has not kept the head of the queue.
func (q querier) unqueue(ctx context.Context, request dialects.Request) error {
	const tries = 3 // somebody may cancel it, as the statement before
	var err error
	for range tries {
		_, err = q.Run(ctx, sqltext.Script{
			sqltext.Silent("savepoint txlock_unqueue"),
			{SQL: "select " + unqueueSQL(sqltext.NumberOf(request.Table), "-"+request.Permit.Rows[0])},
			sqltext.Silent("release savepoint txlock_unqueue"),
		})
		if err == nil || server.Broken(err) { // a session that is gone has given everything back
			return nil
		}
		undo := sqltext.Silent("rollback to savepoint txlock_unqueue")
		if _, undone := q.Run(ctx, sqltext.Script{undo}); undone != nil {
			break
		}
	}
	return fmt.Errorf("the head of a semaphore's queue was not given back: end this connection: %w", err)
}
