package txlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/locktable"
)

// Install creates the lock table, seeds its slots, and creates what stands beside it. It may be
// called at every start, by many replicas at once. It completes what an earlier call left when it
// crashed, and refuses to change the number of slots. After an error empty tables may be left.
// Where programs may not create tables, run the SQL of [Locker.Schema]. Install ends with the proof
// of [Locker.Check], unless the pool has one connection only. A server that does not exclude is
// [ErrUnsafeEngine]; any other error of the proof goes to the log.
func (l *Locker[Tx]) Install(ctx context.Context) error {
	err := l.ready()
	if err == nil {
		err = l.install(ctx)
	}
	if err != nil || l.info().PoolSize == 1 {
		return wrap("install", err)
	}
	// An error of ctx's says nothing about the engine.
	if err = l.Check(ctx); errors.Is(err, ErrUnsafeEngine) && ctx.Err() == nil {
		return wrap("install", err)
	}
	if err != nil {
		l.config.logger.WarnContext(ctx, "txlock: installed, but whether this server excludes was not proved", "table",
			l.config.table, "error", err)
	}
	return nil
}

// install makes what is missing: the tables, then the slots. It looks again each time, for replicas
// do the same meanwhile.
func (l *Locker[Tx]) install(ctx context.Context) error {
	layout, err := l.info().Layout(l.config.table)
	if err != nil {
		return err
	}
	defer l.found.Store(nil) // it may be another table now
	const most = 5
	for tries := 1; ; tries++ {
		statements, err := l.missing(ctx, layout)
		if len(statements) > 0 && tries < most {
			_, err = l.ask(ctx, dialects.Query{SQL: layout.Together(statements...), Table: l.config.table})
		} else if err == nil {
			return nil
		}
		if err != nil && (tries == most || l.driver.Classify(err) != dialects.Deadlock) {
			return err
		}
	}
}

// missing are the statements that make what is missing, and why they are needed. There is only an
// error where nothing can be made.
func (l *Locker[Tx]) missing(ctx context.Context, layout dialects.Layout) (statements []string, why error) {
	lines, err := l.ask(ctx, dialects.Query{SQL: layout.Missing(), Table: l.config.table, Reads: true})
	if err != nil {
		return nil, err
	}
	bits, err := strconv.Atoi(lines[0])
	if err != nil {
		return nil, err
	}
	for i, part := range layout.Parts {
		if bits>>i&1 == 1 {
			statements, why = append(statements, part.SQL), locktable.Older(part.Table)
		}
	}
	if len(statements) > 0 {
		return statements, why
	}
	slots, err := l.census(ctx, layout, l.config.slots)
	if err != nil && slots > 0 {
		statements = append(statements, layout.Seed(slots))
	}
	return statements, err
}

// census reads all of the lock table, as Slots of package locktable says.
func (l *Locker[Tx]) census(ctx context.Context, layout dialects.Layout, asked int) (int, error) {
	lines, err := l.ask(ctx, dialects.Query{SQL: layout.Census, Table: l.config.table, Reads: true})
	if err != nil {
		return 0, err
	}
	slots, _, err := locktable.Slots(l.config.table, lines, asked)
	return slots, err
}

// Schema returns what Install does as SQL text, statements ended by semicolons, for a migration
// tool. Where an option is bad it is a comment that says so, "-- txlock: schema: …", without a
// statement: Install returns the same error.
func (l *Locker[Tx]) Schema() string {
	var layout dialects.Layout
	err := l.config.err
	if l.info == nil {
		err = errZeroLocker
	}
	if err == nil {
		layout, err = l.info().Layout(l.config.table)
	}
	if err != nil {
		// A line of its own, and no semicolon, at which a migration tool would begin a statement.
		return "-- " + strings.NewReplacer("\n", " ", "\r", " ", ";", ",").Replace(wrap("schema", err).Error()) + "\n"
	}
	return layout.Text(cmp.Or(l.config.slots, dialects.DefaultSlots))
}

// patience is how long Check may keep others waiting when it falls silent. It has no heartbeat, so
// it is not as short as a lease may be.
func (l *Locker[Tx]) patience() time.Duration { return max(l.config.lease, dialects.ReleaseTimeout) }

// Ping asks whether locks can be taken at this server, in one round trip and without a lock: for
// readiness probes. After nil the server has answered, takes writes, and has the lock table. What
// may still fail is what only a lock meets: slots that are missing, a privilege, a full pool. A
// table that is missing or empty is [ErrNotInstalled]. A standby, or a server that is read only, is
// [ErrUnsafeEngine]. Ping waits for a connection of the pool as long as ctx allows. The first call
// may take a round trip more.
func (l *Locker[Tx]) Ping(ctx context.Context) error {
	err := l.ready()
	if err == nil {
		err = l.ping(ctx)
	}
	return wrap("ping", err)
}

func (l *Locker[Tx]) ping(ctx context.Context) error {
	found, err := l.find(ctx, false)
	if err != nil {
		return err
	}
	lines, err := l.ask(ctx, found.Kinds.Ping)
	switch {
	case err == nil && len(lines) == 0:
		_, _, err = locktable.Slots(l.config.table, nil, 0)
	case err == nil && lines[0] != "":
		err = fmt.Errorf("%w: %s", ErrUnsafeEngine, lines[0])
	}
	return err
}

// find looks the lock table up, once. That takes a connection for a moment. From then on the table
// is called by its full name: what changes the search_path or the default database of a connection,
// as work may, moves nobody to the locks of another table.
func (l *Locker[Tx]) find(ctx context.Context, connected bool) (*dialects.LockTable, error) {
	if found := l.found.Load(); found != nil {
		return found, nil
	}
	found, err := lookUp(ctx, connected, "the lock table was", "call Install or Check",
		func(ctx context.Context) (dialects.LockTable, error) {
			return locktable.Find(ctx, l.driver, l.config.table)
		})
	if err != nil {
		return nil, err
	}
	l.found.Store(&found)
	return &found, nil
}

// invalidate has the lock table looked up anew after err, if that says that there is none: it may
// be installed anew, with another number of slots, or in another schema. No call is tried again for
// that.
func (l *Locker[Tx]) invalidate(err error) {
	if errors.Is(err, ErrNotInstalled) {
		l.found.Store(nil)
	}
}

// lookUpLimit bounds what takes another connection for a moment, for a caller that holds one
// already: in a full pool it might wait for itself.
const lookUpLimit = 3 * time.Second

// lookUp looks up what is not known yet. Connected says that the caller already has a connection.
func lookUp[T any](ctx context.Context, connected bool, what, advice string, look func(context.Context) (T, error)) (
	found T, err error,
) {
	if !connected {
		return look(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpLimit)
	defer cancel()
	if found, err = look(ctx); errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%s not looked up yet, and the caller's transaction keeps the pool from it (%s at start): %w",
			what, advice, err)
	}
	return found, err
}

// ask runs a statement of a kind by itself, on a connection of the pool.
func (l *Locker[Tx]) ask(ctx context.Context, q dialects.Query) (lines []string, err error) {
	lines, err = l.driver.Run(ctx, q)
	if ended := ctx.Err(); err != nil && ended != nil && !errors.Is(err, ended) {
		err = fmt.Errorf("%w (%w)", err, ended)
	}
	l.invalidate(err)
	return lines, err
}
