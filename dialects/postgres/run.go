package postgres

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/installation"
	"github.com/txlock/txlock/dialects/postgres/internal/kinds"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// writes are statements that have rows only where they return them.
var writes = regexp.MustCompile(`^(insert|update|delete|do) `)

// scriptOf is a query as it is sent. A statement has the arguments that it names.
func scriptOf(q dialects.Query) (s sqltext.Script) {
	args := make([]string, len(q.Args))
	for i, arg := range q.Args {
		switch arg := arg.(type) {
		case []byte:
			args[i] = fmt.Sprintf(`\x%x`, arg)
		default:
			args[i] = fmt.Sprint(arg)
		}
	}
	for text := range strings.SplitSeq(q.SQL, ";\n") {
		named := len(args)
		for named > 0 && !strings.Contains(text, "$"+strconv.Itoa(named)) {
			named--
		}
		statement := sqltext.With(text, args[:named]...)
		statement.Silent = writes.MatchString(text) && !strings.Contains(text, " returning ")
		s = append(s, statement)
	}
	return s
}

// lastOf are the rows of the last statement of several.
func lastOf(columns [][]string) []string { return columns[len(columns)-1] }

// Run implements dialects.Driver.
func (d *driver[Tx]) Run(ctx context.Context, q dialects.Query) (lines []string, err error) {
	err = d.with(ctx, func(l client.Line) error {
		// Where statements travel one by one, this process may be stopped in between.
		begin := sqltext.Script{client.Begin, client.Leased(interrupt.CleanUp)}
		script := append(append(begin, scriptOf(q)...), client.Commit)
		var columns [][]string
		err := querier{l}.interrupted(ctx, false, owner, func(ctx context.Context) (err error) {
			columns, err = l.Run(ctx, script)
			return err
		})
		if err != nil {
			l.Abandon(ctx)
			return querier{l}.explainStandby(ctx, dialects.Request{Shared: true}, server.Ours(err, q.Table))
		}
		lines = lastOf(columns[:len(columns)-1])
		return nil
	})
	return lines, err
}

// RunTx implements dialects.Driver. A savepoint keeps the transaction safe from every error.
func (d *driver[Tx]) RunTx(ctx context.Context, tx Tx, q dialects.Query) (lines []string, err error) {
	l, err := d.in(ctx, tx, true)
	if err != nil {
		return nil, err
	}
	clean, cancel := interrupt.Detached(ctx) // pgx closes the connection when ctx ends
	defer cancel()
	script := append(append(sqltext.Script{client.WaitSavepoint}, scriptOf(q)...), client.ReleaseWait)
	columns, err := l.Run(clean, script)
	if err == nil {
		return lastOf(columns[:len(columns)-1]), nil
	}
	if server.State(err) != server.AbortedBefore { // else no savepoint is set
		if _, undone := l.Run(clean, sqltext.Script{client.UndoWait, client.ReleaseWait}); undone != nil {
			return nil, dialects.Lost(fmt.Errorf("%w (%v)", undone, err))
		}
	}
	return nil, server.Ours(err, q.Table)
}

// Run implements dialects.Session. Behind the end of the transaction it would be committed by
// itself, so the proof is in front.
func (s *session[Tx]) Run(ctx context.Context, q dialects.Query) ([]string, error) {
	clean, cancel := interrupt.Detached(ctx) // as in RunTx
	defer cancel()
	columns, err := s.Line.Run(clean, append(sqltext.Script{client.Proof(s.mark)}, scriptOf(q)...))
	switch state := server.State(err); {
	case err == nil:
		return lastOf(columns), nil
	case server.Broken(err), state == server.DivisionByZero: // of the proof
		return nil, dialects.Lost(err)
	case state == server.AbortedBefore:
		return nil, errAborted
	}
	return nil, server.Ours(err, q.Table)
}

// Find implements dialects.Driver.
func (d *driver[Tx]) Find(ctx context.Context, table string) (found dialects.LockTable, err error) {
	query, err := installation.FindSQL(table)
	if err != nil {
		return found, err
	}
	lines, err := d.Run(ctx, dialects.Query{SQL: query, Table: table, Reads: true})
	if err == nil {
		found.Slots, found.Name, err = locktable.Found(table, lines)
	}
	if err == nil {
		found.Kinds, err = kinds.Of(found.Name)
	}
	return found, err
}
