package postgres

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// scriptOf is a query as it is sent. A statement has the arguments that it names.
func scriptOf(q dialects.Query) (s sqltext.Script) {
	args := make([]any, len(q.Args))
	for i, arg := range q.Args {
		args[i] = fmt.Sprint(arg)
		if bytes, is := arg.([]byte); is {
			args[i] = fmt.Sprintf(`\x%x`, bytes)
		}
	}
	for text := range strings.SplitSeq(q.SQL, ";\n") {
		named := len(args)
		for named > 0 && !strings.Contains(text, "$"+strconv.Itoa(named)) {
			named--
		}
		s = append(s, sqltext.Silent(text, args[:named]...))
	}
	s[len(s)-1].Silent = false
	return s
}

// Run implements dialects.Driver.
func (d *driver[Tx]) Run(ctx context.Context, q dialects.Query, in ...Tx) ([]string, error) {
	if len(in) == 0 {
		return d.runAlone(ctx, interrupt.Longest, true, q)
	}
	l, err := d.in(ctx, in[0])
	if err != nil {
		return nil, err
	}
	clean, cancel := interrupt.Detached(ctx) // pgx closes the connection when ctx ends
	defer cancel()
	script := append(append(sqltext.Script{set(inCallers)}, scriptOf(q)...), release(inCallers))
	columns, err := l.Run(clean, script)
	if err != nil {
		own := dialects.Request{Table: q.Table, Ours: true}
		return nil, undo(clean, l, inCallers, own, err, len(columns), server.Ours(err, q.Table))
	}
	return columns[len(columns)-2], nil
}

// runAlone runs a query in a transaction of its own. Patience bounds the wait for a connection.
// When ctx ends, the statement is interrupted where it may be, or else the connection is closed.
func (d *driver[Tx]) runAlone(ctx context.Context, patience time.Duration, interruptible bool, q dialects.Query) (
	[]string, error,
) {
	wait, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := d.acquire(wait)
	if err != nil {
		return nil, err
	}
	defer conn.GiveBack()
	if err = d.identify(ctx, conn.Line); err != nil {
		return nil, err
	}
	stop := conn.Interrupt
	if !interruptible {
		stop = func(context.Context) error { return interrupt.ErrNoConnection }
	}
	// Where statements travel one by one, this process may be stopped in between.
	leased := sqltext.With("select "+leaseSQL("$1"), milliseconds(interrupt.CleanUp))
	script := slices.Concat(sqltext.Script{client.Begin, leased}, scriptOf(q), sqltext.Script{client.Commit})
	var columns [][]string
	err = interrupt.Await(ctx, false, interrupt.Patience, stop, conn.Cut, func(ctx context.Context) (err error) {
		columns, err = conn.Line.Run(ctx, script)
		return err
	})
	if err == nil {
		return columns[len(columns)-2], nil
	}
	// Where that fails, the connection is closed: pgxpool does it at once, database/sql when the
	// connection is taken again.
	clean, cancel := interrupt.Detached(ctx)
	defer cancel()
	if status := conn.Status(); status != client.Idle && status != client.Closed {
		_ = conn.Line.Exec(clean, "rollback")
	}
	return nil, explain(clean, conn.Line, dialects.Request{}, server.Ours(err, q.Table))
}
