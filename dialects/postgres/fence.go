package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/internal/locktable"
)

// fence is what tokens are made of: the number of the server's run, and a sequence that counts in
// it.
//
// nextval is not undone by a rollback, takes no lock that lasts, and does not touch the lock row.
// But the server writes it to the log without waiting for the disk: after a crash the sequence may
// stand where it stood before, and counts would be given out again. So runs, which says with which
// number and at which count this run began, is an unlogged table: a crash empties it, and so does
// the promotion of a standby (manual, CREATE TABLE, UNLOGGED). Where it is empty no token comes.
// The next holder first draws a number from epochs, an ordinary table, in a transaction of its own
// that waits for the disk, and for synchronous standbys. Only when that is committed does it write
// the number to runs, in another: a transaction whose wait for a standby is broken off is visible
// all the same.
type fence struct{ epochs, runs, sequence string }

// errNoRun says that the server has crashed, or was promoted, since the last token.
var errNoRun = errors.New("no token: the server has crashed or was promoted")

// fenceOf are the names behind the lock table's own, quoted. They must be short enough to be told
// apart: the server cuts names at 63 bytes.
func fenceOf(table string) (fence, error) {
	quoted, err := quoteTable(table)
	if err != nil {
		return fence{}, err
	}
	const longest = 63
	stem := strings.TrimSuffix(quoted, `"`)
	if name := stem[strings.LastIndex(stem, `."`)+1:]; len(name) > longest-len("_tokens") {
		return fence{}, fmt.Errorf("table name %.100s is too long for fencing: at most %d bytes", table,
			longest-len("_tokens"))
	}
	return fence{epochs: stem + `_epochs"`, runs: stem + `_runs"`, sequence: stem + `_tokens"`}, nil
}

func (f fence) literal() string { return "'" + strings.ReplaceAll(f.sequence, "'", "''") + "'" }

// token is sent behind the statement that locks the rows. In that statement it would be evaluated
// before the wait.
func (f fence) token() string {
	return "select epoch || ' ' || nextval(" + f.literal() + ") - start from " + f.runs
}

func tokenOf(column []string) (int64, error) {
	if len(column) == 0 {
		return 0, errNoRun
	}
	var epoch, count uint64
	if _, err := fmt.Sscanf(column[0], "%d %d", &epoch, &count); err != nil {
		return 0, fmt.Errorf("no token: %q: %w", column[0], err)
	}
	return fencing.Token(epoch, count)
}

// schema is the SQL text that creates the fence. The row of runs is inserted by the first holder.
func (f fence) schema() []string {
	return []string{
		"CREATE TABLE IF NOT EXISTS " + f.epochs + " (\n    epoch bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,\n " +
			"   begun boolean NOT NULL DEFAULT false\n)",
		"CREATE UNLOGGED TABLE IF NOT EXISTS " + f.runs +
			" (\n    running boolean NOT NULL PRIMARY KEY CHECK (running),\n" +
			"    epoch bigint NOT NULL,\n    start bigint NOT NULL\n)",
		"CREATE SEQUENCE IF NOT EXISTS " + f.sequence,
	}
}

// lift numbers the server's run. Of several that try at once one numbers it; the others wait for
// its commit, and their numbers are skipped.
func (l line) lift(ctx context.Context, table string) error {
	f, err := fenceOf(table)
	if err != nil {
		return err
	}
	for range 3 {
		begun, err := l.number(ctx, f)
		if err != nil {
			l.abandon(ctx)
			return fmt.Errorf("number the server's run in %s, after a crash or a promotion: %w", f.epochs, err)
		}
		if begun {
			return nil
		}
	}
	return errNoRun
}

// number draws a number, and makes it that of the run unless the run has one. It is refused when a
// higher one was that of a run already: the server has crashed since it was drawn, behind a pooler
// that keeps this connection.
func (l line) number(ctx context.Context, f fence) (begun bool, err error) {
	// Whatever the database's default is, less would not wait for the disk, or not for the
	// synchronous standbys.
	durable := statement{sql: "select set_config('synchronous_commit', 'on', true) where " +
		"current_setting('synchronous_commit') not in ('on', 'remote_apply')"}
	drawn, err := l.run(ctx, script{
		{sql: beginSQL},
		durable,
		{sql: "insert into " + f.epochs + " default values returning epoch::text"},
		{sql: "commit"},
	})
	if err != nil {
		return false, err
	}
	epoch := drawn[2][0]
	run, err := l.run(ctx, script{
		{sql: beginSQL},
		durable,
		{"with run as (insert into " + f.runs + " select true, $1::bigint, last_value - 1 from " + f.sequence +
			" where not exists (select from " + f.epochs +
			" where epoch > $1::bigint and begun) on conflict do nothing returning epoch) " +
			"update " + f.epochs + " set begun = true where epoch in (select epoch from run)", []any{epoch}},
		{sql: "commit"},
		{sql: "select epoch::text from " + f.runs},
	})
	return err == nil && len(run[4]) > 0, err
}

// explainFence says of a table that the server did not find whether it is one of the fence. If not,
// the error is otherwise.
func (l line) explainFence(ctx context.Context, request dialects.Request, missing *pgconn.PgError,
	otherwise error,
) error {
	f, err := fenceOf(request.Fence)
	if err != nil {
		return err
	}
	columns, err := l.run(ctx, script{{"select to_regclass($1) is not null and to_regclass($2) is not null and " +
		"to_regclass($3) is not null", []any{f.epochs, f.runs, f.sequence}}})
	if err == nil && !isTrue(columns[0][0]) {
		return locktable.NoFence(request.Fence, missing)
	}
	return otherwise
}
