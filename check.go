package txlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/locktable"
)

// Check proves that this server excludes: that a second session is refused a slot which the first
// has, alone or shared, and gets it when it is free. Where two have it, Check is [ErrUnsafeEngine].
// So is a node of a cluster whose nodes all take writes, because each node locks for itself: Galera
// of MySQL, a replication group in multi-primary mode, pgactive, BDR, Spock, subscriptions of
// PostgreSQL to the lock table. Any other error says that nothing was proved. Check takes two
// connections, also of a pooler, and waits some 4 s for the second. Call it at start where Install
// is not called. For a readiness probe there is [Locker.Ping].
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
	l.found.Store(nil) // a group may have another mode now
	found, err := l.find(ctx, false)
	if err != nil {
		return err
	}
	layout, err := l.info().Layout(found.Name)
	if err != nil {
		return err
	}
	if census, err := l.census(ctx, layout.Census); err != nil {
		return err
	} else if _, err = census.Seeded(l.config.table); err != nil {
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
		if free, err := l.proveOn(ctx, found, strconv.Itoa(rand.IntN(found.Slots))); free || err != nil {
			return err
		}
	}
	return fmt.Errorf("nothing is proved: %d random slots in a row were held by others", most)
}

// census reads the slots of the lock table, by a text of the driver's.
func (l *Locker[Tx]) census(ctx context.Context, sql string) (locktable.Census, error) {
	lines, err := l.ask(ctx, dialects.Query{SQL: sql, Table: l.config.table, Reads: true})
	if err != nil {
		return locktable.Census{}, err
	}
	census, _, err := locktable.CensusOf(l.config.table, lines)
	return census, err
}

// proveOn proves that the server locks a slot, unless others hold it. Something of the library's
// may stand in front of a row: so the rival also asks for it as for one of a caller's table, in
// front of which something else stands. A cluster that certifies rows has those of the lock table
// alone, and shares none.
func (l *Locker[Tx]) proveOn(ctx context.Context, found *dialects.LockTable, slot string) (free bool, err error) {
	ours := dialects.Request{
		Table: found.Name, Column: slotColumn, Values: []dialects.Value{{Text: slot}}, Try: true, Ours: true,
		Slots: found.Slots, Lease: l.patience(),
	}
	shared, row := ours, ours
	shared.Shared = true
	row.Ours, row.Slots = false, 0
	never := func(what string) func() error {
		return func() error {
			return fmt.Errorf("%w: two sessions hold slot %s at once, %s", ErrUnsafeEngine, slot, what)
		}
	}
	together := false
	alone := func() (err error) {
		if _, err = l.trying(ctx, ours, never("each alone")); err == nil && !found.Kinds.Certified {
			_, err = l.trying(ctx, row, never("where no lock of another kind is in front of the row"))
		}
		return err
	}
	sharing := func() (err error) {
		if _, err = l.trying(ctx, ours, never("and one of them shares it")); err == nil {
			together, err = l.trying(ctx, shared, func() error { return nil })
		}
		return err
	}
	if free, err = l.trying(ctx, ours, alone); !free || err != nil || found.Kinds.Certified {
		return free, err
	}
	free, err = l.trying(ctx, shared, sharing)
	return free && together, err
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
