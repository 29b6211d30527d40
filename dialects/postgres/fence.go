package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
)

// fence is what tokens are made of: a sequence, and a table that has a row as long as the sequence can be trusted.
//
// nextval is not undone by a rollback, takes no lock that lasts, and does not touch the lock row. But the server writes it to the
// log without waiting for the disk: after a crash the sequence may stand where it stood before, and tokens would be given out again. So
// the table is unlogged: a crash empties it, and so does the promotion of a standby (manual, CREATE TABLE, UNLOGGED). Where it is
// empty no token comes; the next holder first lifts the sequence to the next multiple of 2^40 in a transaction that waits
// for the disk, and for synchronous standbys. That is above all tokens that were given out since the last such transaction.
type fence struct{ sequence, runs string }

// errNoRun says that the server has crashed, or was promoted, since the last token.
var errNoRun = errors.New("no token: the server has crashed or was promoted")

// fenceOf are the names behind the lock table's own, quoted. They must be short enough to be told apart: the server cuts
// names at 63 bytes.
func fenceOf(table string) (fence, error) {
	quoted, err := quoteTable(table)
	if err != nil {
		return fence{}, err
	}
	const longest = 63
	stem := strings.TrimSuffix(quoted, `"`)
	if name := stem[strings.LastIndex(stem, `."`)+1:]; len(name) > longest-len("_tokens") {
		return fence{}, fmt.Errorf("table name %.100s is too long for fencing: at most %d bytes", table, longest-len("_tokens"))
	}
	return fence{sequence: stem + `_tokens"`, runs: stem + `_runs"`}, nil
}

func (f fence) literal() string { return "'" + strings.ReplaceAll(f.sequence, "'", "''") + "'" }

// token is sent behind the statement that locks the rows. In that statement it would be evaluated before the wait.
func (f fence) token() string { return "select nextval(" + f.literal() + ")::text from " + f.runs }

func tokenOf(column []string) (int64, error) {
	if len(column) == 0 {
		return 0, errNoRun
	}
	return strconv.ParseInt(column[0], 10, 64)
}

// schema is the SQL text that creates the fence. The row of runs is inserted by the first holder.
func (f fence) schema() []string {
	return []string{
		"CREATE SEQUENCE IF NOT EXISTS " + f.sequence,
		"CREATE UNLOGGED TABLE IF NOT EXISTS " + f.runs + " (\n    running boolean NOT NULL PRIMARY KEY CHECK (running)\n)",
	}
}

// lift makes the sequence trustworthy again. Of several that try at once one does it, and the others wait for its commit.
func (l line) lift(ctx context.Context, table string) error {
	f, err := fenceOf(table)
	if err != nil {
		return err
	}
	_, err = l.run(ctx, script{
		{sql: beginSQL},
		// Whatever the database's default is, "off" would not wait for the disk; the other values wait for more than it.
		{sql: "select set_config('synchronous_commit', 'on', true) where current_setting('synchronous_commit') = 'off'"},
		{sql: "with won as (insert into " + f.runs + " values (true) on conflict do nothing returning running) " +
			"select setval(" + f.literal() + ", ((last_value >> 40) + 1) << 40) from " + f.sequence + ", won"},
		{sql: "commit"},
	})
	if err != nil {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
		defer cancel()
		_, _ = l.run(clean, script{{sql: "rollback"}}) // else the connection is closed when it goes back
		return fmt.Errorf("lift the fence %s after a crash of the server: %w", f.sequence, err)
	}
	return nil
}

// explainFence says of a table that was not found whether it is one of the fence.
func (l line) explainFence(ctx context.Context, request dialects.Request, missing error) error {
	f, err := fenceOf(request.Fence)
	if err != nil {
		return err
	}
	columns, err := l.run(ctx, script{{"select to_regclass($1) is not null and to_regclass($2) is not null", []any{f.sequence, f.runs}}})
	if err == nil && !isTrue(columns[0][0]) {
		return dialects.NotInstalled(request.Fence, fmt.Errorf("it has no fence, call Install with WithFencing: %w", missing))
	}
	return missing
}
