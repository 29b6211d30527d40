package txlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/locktable"
)

// Install creates the lock table, seeds its slots, and creates what stands beside it. It may be
// called at every start, by many replicas at once, completes what a crash has left, and refuses to
// change the number of slots. Where programs may not create tables, run the SQL of [Locker.Schema].
// Install ends with the proof of [Locker.Check], unless the pool has one connection only: a server
// that does not exclude is [ErrUnsafeEngine], any other error of the proof goes to the log.
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
			if tries == 1 {
				continue // an error may be that another replica has added a column meanwhile
			}
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
			statements = append(statements, part.SQL)
			// Version 0.1 knows semaphores and elections by their names: clients of both would not
			// exclude each other, so nothing changes a table of its while that may be in use.
			why = fmt.Errorf("%w: table %.100s was made by version 0.1: stop what leads or takes permits, run DROP "+
				"TABLE %[2]s, and then Install", ErrNotInstalled, part.Table)
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
// tool that runs them in one session. Where an option is bad it is a comment, "-- txlock: schema:
// …", without a statement.
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

// Ping asks whether locks can be taken at this server, in one round trip and without a lock: for
// readiness probes. A table that is missing or empty is [ErrNotInstalled], a standby or a server
// that is read only [ErrUnsafeEngine]. Slots that are missing, a privilege and a full pool show
// with a lock alone.
func (l *Locker[Tx]) Ping(ctx context.Context) error {
	lines, err := l.askKind(ctx, func(k dialects.Kinds) dialects.Query { return k.Ping })
	switch {
	case err == nil && len(lines) == 0:
		_, _, err = locktable.Slots(l.config.table, nil, 0)
	case err == nil && lines[0] != "":
		err = fmt.Errorf("%w: %s", ErrUnsafeEngine, lines[0])
	}
	return wrap("ping", err)
}

// Check proves that this server excludes: that a second session is refused a slot which the first
// has, alone or shared. Where two have it, and on a node of a cluster whose nodes all take writes,
// it is [ErrUnsafeEngine]. Any other error says that nothing was proved. Check takes two
// connections, and waits some 4 s for the second. Call it at start where Install is not called.
func (l *Locker[Tx]) Check(ctx context.Context) error {
	err := l.ready()
	if err == nil {
		err = l.check(ctx)
	}
	switch ended := ctx.Err(); {
	case err != nil && ended != nil: // says nothing about the engine
		err = ended
	case errors.Is(err, ErrUnsafeEngine):
		l.config.logger.ErrorContext(ctx, "txlock: this server does not exclude, do not use it for locks", "table",
			l.config.table, "error", err)
	}
	return wrap("check", err)
}

func (l *Locker[Tx]) check(ctx context.Context) error {
	found, err := locktable.Find(ctx, l.driver, l.config.table) // a group may have another mode now
	if l.invalidate(err); err != nil {
		return err
	}
	l.found.Store(&found)
	layout, err := l.info().Layout(found.Name)
	if err != nil {
		return err
	}
	if _, err = l.census(ctx, layout, 0); err != nil {
		return err
	}
	if layout.Writers != "" {
		reasons, err := l.ask(ctx, dialects.Query{SQL: layout.Writers, Table: found.Name, Reads: true})
		switch {
		case len(reasons) > 0:
			return locktable.ManyWriters(reasons[0])
		case err != nil && (ctx.Err() != nil || l.driver.Classify(err) != dialects.Final):
			return err // any other: the server knows no such things, or does not show them
		}
	}
	const most = 10 // another client of the same table may hold a slot
	for range most {
		if free, err := l.proveOn(ctx, &found, strconv.Itoa(rand.IntN(found.Slots))); free || err != nil {
			return err
		}
	}
	return fmt.Errorf("nothing is proved: %d random slots in a row were held by others", most)
}

// proveOn proves that the server locks a slot, unless others hold it: it asks for the slot in a
// second session while the first has it. Something of the library's may stand in front of a row: so
// the second asks for it as for one of a caller's table, in front of which something else stands.
// A cluster that certifies rows has those of the lock table alone, and shares none.
func (l *Locker[Tx]) proveOn(ctx context.Context, found *dialects.LockTable, slot string) (free bool, err error) {
	ours := dialects.Request{
		Table: found.Name, Column: slotColumn, Values: []dialects.Value{{Text: slot}}, Try: true, Ours: true,
		Slots: found.Slots, Lease: max(l.config.lease, dialects.ReleaseTimeout), // no heartbeat keeps it alive
	}
	shared, row := ours, ours
	shared.Shared = true
	row.Ours, row.Slots = false, 0
	pairs := [][2]dialects.Request{{ours, row}, {shared, ours}, {shared, shared}}
	if found.Kinds.Certified {
		pairs = [][2]dialects.Request{{ours, ours}}
	}
	for _, pair := range pairs {
		both := false
		free, err = l.trying(ctx, pair[0], func() (err error) {
			both, err = l.trying(ctx, pair[1], func() error { return nil })
			return err
		})
		switch mayBoth := pair[1].Shared; {
		case both && !mayBoth && err == nil: // else the first may have been lost
			return false, fmt.Errorf("%w: two sessions hold slot %s at once (shared by the first: %t)", ErrUnsafeEngine,
				slot, pair[0].Shared)
		case err != nil || !free || both != mayBoth:
			return false, err
		}
	}
	return true, nil
}

// trying runs work in front of the end of a session that has locked request, if that was free.
func (l *Locker[Tx]) trying(ctx context.Context, request dialects.Request, work func() error) (free bool, err error) {
	const most = 4 * time.Second // and some two until a pooler lets go
	brief, cancel := context.WithTimeout(ctx, most)
	defer cancel()
	s, _, err := l.driver.Begin(brief, request)
	refused := errors.Is(err, ErrNotAcquired)
	switch {
	case err != nil && (brief.Err() != nil || !refused && l.driver.Classify(err) != dialects.Final):
		return false, fmt.Errorf("no second connection came, so whether the server locks was not checked: %w", err)
	case refused:
		return false, nil
	case err != nil:
		return false, err
	}
	defer func() {
		err = joinErrors(err, s.End(context.WithoutCancel(ctx), time.Now().Add(dialects.ReleaseTimeout), false))
	}()
	return true, work()
}
