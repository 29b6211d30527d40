package txlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
	"github.com/txlock/txlock/internal/locktable"
)

// Holding is a row that a session holds, or that sessions wait for.
type Holding struct {
	// Table is the lock table, or that of [Locker.Rows], as its user spells it.
	Table string
	// Column and Row are the column of Rows and its value. For a key, Column is empty and Row is
	// the number of the slot.
	Column, Row string
	// Key is what the holder named, else the first reader or waiter that says so; empty for Rows,
	// and where no session says it, see [WithHiddenKeys]. "…" follows where only a part fits.
	Key string
	// Holder is nil while the row passes from one session to the next. On MariaDB it may be empty:
	// the row is held, and the server did not say by whom, see [Locker.Inspect].
	Holder *Session
	// Readers share the row, see [Mutex.Shared]. On MariaDB some may be empty, as Holder may.
	Readers []Session
	Waiters []Session // in the order of the queue
	// Permits are the sessions that hold a permit each, of a [Locker.Semaphore]: Column is
	// "semaphore", Row a hash of its key, and Holder nil. To break one, set Holder to it. Of a
	// [Locker.Election], Column is "election", and Holder leads it. Of a [Locker.Claim], Column is
	// "claim", and Holder has no session: By says who has it, and Until for how long. For a name
	// that is hidden, Key is what the caller named, else "~", the beginning of the hash, and "…".
	Permits []Session
	// Behind is how many more callers of this Locker wait inside the process, see [WithQueue].
	Behind int
}

// Session is a session of the server, as the server shows it. What the server does not show to this
// role is empty.
type Session struct {
	ID          string // the backend's process on PostgreSQL, else the connection; empty: nobody knows
	Permit      int    // of a semaphore, that it holds
	Key         string // of a slot, what it named, when it says so
	Application string
	Host        string // of the client, with its port where the server shows one: never on MySQL
	Process     int    // of the client, on its host
	User        string
	Database    string
	Shared      bool      // it shares the row, or waits to share it
	By          string    // who has a claim
	Until       time.Time // its end, by the server's clock; over while its holder is in a Do
	// Prepared is the name of a prepared transaction that has the lock (PREPARE TRANSACTION, on
	// PostgreSQL). It belongs to no session: COMMIT PREPARED or ROLLBACK PREPARED ends it.
	Prepared string
	// Since is when the transaction began, by the server's clock; of a lock that is renewed, the
	// first one; of a prepared one, when that was prepared; of a waiter, when the wait began. For
	// is how long ago that is. Where the server shows neither, Since.IsZero and For is 0.
	Since     time.Time
	For       time.Duration
	Idle      bool   // it runs no statement; false means unknown where Since is not known
	Statement string // that it runs, or ran last
	party     dialects.Party
	token     int64 // of a claim
}

// Inspect returns what is held or awaited, by whichever process: slots of the lock table, in order,
// and then, by column, rows of [Locker.Rows], claims, elections and semaphores; with keys, those of
// these names alone. It is a picture of a moment, and changes nothing. MariaDB lists only what
// somebody waits for: there it waits for a moment for what keys name, on up to four further
// connections, some half a second for each four. docs/operations.md has the privileges that it
// takes, and what each server does not show. A driver that shows nothing is an error.
func (l *Locker[Tx]) Inspect(ctx context.Context, keys ...string) ([]Holding, error) {
	holdings, err := l.inspect(ctx, keys)
	if err != nil {
		l.invalidate(err)
		return nil, fmt.Errorf("txlock: inspect: %w", err)
	}
	return holdings, nil
}

func (l *Locker[Tx]) inspect(ctx context.Context, keys []string) ([]Holding, error) {
	inspector, err := l.inspector()
	if err != nil {
		return nil, err
	}
	found, err := l.find(ctx, false)
	if err != nil {
		return nil, err
	}
	of := dialects.Inspection{Table: *found}
	for _, key := range keys {
		if key == "" {
			return nil, errors.New("a key is empty")
		}
		of.Slots = append(of.Slots, strconv.Itoa(dialects.SlotOf(key, found.Slots)))
		of.Names = append(of.Names, label.Hash(key))
	}
	states, err := inspector.Inspect(ctx, of)
	if err != nil {
		return nil, err
	}
	claims, err := l.heldClaims(ctx, found.Kinds.Claims, keys)
	if err != nil {
		return nil, err
	}
	holdings := append(l.holdingsOf(states, of, keys), claims...)
	slices.SortFunc(holdings, func(a, b Holding) int {
		return cmp.Or(cmp.Compare(a.Column, b.Column), cmp.Compare(a.Table, b.Table),
			cmp.Compare(len(a.Row), len(b.Row)), cmp.Compare(a.Row, b.Row))
	})
	return holdings, nil
}

// inspector is the driver, if that shows who holds locks.
func (l *Locker[Tx]) inspector() (dialects.Inspector, error) {
	if err := l.ready(); err != nil {
		return nil, err
	}
	inspector, shows := l.driver.(dialects.Inspector)
	if !shows {
		return nil, fmt.Errorf("the driver %T does not show who holds locks", l.driver)
	}
	return inspector, nil
}

// holdingsOf are the rows that were asked for, those of a semaphore together.
func (l *Locker[Tx]) holdingsOf(states []dialects.RowState, of dialects.Inspection, keys []string) (all []Holding) {
	semaphores := map[string]*Holding{}
	for _, state := range states {
		h := Holding{
			Table: cmp.Or(state.Table, l.config.table), Column: state.Column, Row: state.Value,
			Readers: sessionsOf(state.Readers...), Waiters: sessionsOf(state.Waiters...),
		}
		if state.Holder != nil {
			h.Holder = &sessionsOf(*state.Holder)[0]
			h.Key = h.Holder.Key
		}
		for _, s := range slices.Concat(h.Readers, h.Waiters) {
			h.Key = cmp.Or(h.Key, s.Key)
		}
		if state.Kind != dialects.KindRow {
			h.Column, h.Row, h.Key = electionColumn, state.Hash, label.Known(state.Named)
			if at := slices.Index(of.Names, state.Hash); at >= 0 {
				h.Key = keys[at]
			}
		}
		switch {
		case state.Kind == dialects.KindSemaphore:
			h.Column = semaphoreColumn
			semaphores[state.Hash] = semaphores[state.Hash].with(h, state.Permit)
		case state.Kind == dialects.KindElection, of.Slots == nil, h.Column == "" && slices.Contains(of.Slots, h.Row):
			all = append(all, h)
		}
	}
	for _, h := range semaphores {
		if len(h.Permits)+len(h.Waiters) > 0 { // else somebody only looks
			all = append(all, *h)
		}
	}
	here := l.waitingHere() // later: who has gone from the process to the server meanwhile counts once
	for i, h := range all {
		line := row{h.Table, h.Column, h.Row}
		if h.Column == "" {
			line = row{of.Table.Name, slotColumn, h.Row}
		}
		all[i].Behind = here[line]
	}
	return all
}

// with adds a row of a semaphore to the others: a permit, or behind the last one the queue, whose
// holder is the first that waits. Of the first row h is nil.
func (h *Holding) with(one Holding, permit int) *Holding {
	if h == nil {
		h = &Holding{Table: one.Table, Column: one.Column, Row: one.Row, Key: one.Key}
	}
	h.Waiters = append(h.Waiters, one.Waiters...)
	switch holder := one.Holder; {
	case holder == nil:
	case permit == locktable.QueuePermit:
		h.Waiters = slices.Insert(h.Waiters, 0, *holder)
	default:
		holder.Permit = permit
		h.Permits = append(h.Permits, *holder)
		slices.SortFunc(h.Permits, func(a, b Session) int { return cmp.Compare(a.Permit, b.Permit) })
	}
	return h
}

func sessionsOf(parties ...dialects.Party) (sessions []Session) {
	for _, p := range parties {
		sessions = append(sessions, Session{
			ID: p.Session, Prepared: p.Prepared, Key: p.Key, Application: p.Application, Host: p.Host,
			Process: p.Process, User: p.User, Database: p.Database, Shared: p.Shared, Since: p.Since, For: p.For,
			Idle: p.Idle, Statement: p.Statement, party: p,
		})
	}
	return sessions
}

// Break ends the session of the Holder: the server undoes what it has not committed, and gives the
// lock to the next in the queue. Nil means that the session, and the lock with it, has ended. Of
// several Readers, make the one to end the Holder first. A claim has no session: Break ends it,
// behind a Do of its holder that is under way, whose next call is [ErrClaimEnded]. Break ends
// nothing, and is [ErrNotHeld], when the session has left the transaction that Inspect showed. For
// a Holder without an ID it is another error. docs/operations.md says who may do it.
func (l *Locker[Tx]) Break(ctx context.Context, holding Holding) error {
	err := l.breakUp(ctx, holding)
	switch {
	case err != nil && holding.Table == "":
		return fmt.Errorf("txlock: break: %w", err)
	case err != nil:
		return fmt.Errorf("txlock: break the lock on %s: %w", holding.name(), err)
	}
	return nil
}

func (l *Locker[Tx]) breakUp(ctx context.Context, holding Holding) error {
	inspector, err := l.inspector()
	if err != nil {
		return err
	}
	several := slices.Concat(holding.Readers, holding.Permits)
	if holding.Holder == nil && len(several) == 1 {
		holding.Holder = &several[0]
	}
	switch holder := holding.Holder; {
	case holding.Table == "" || holder != nil && holder.ID != holder.party.Session:
		return fmt.Errorf("%w: this is no Holding of Inspect", ErrNotHeld)
	case holder == nil && len(several) > 0:
		return fmt.Errorf("%d sessions hold it together, and none was ended: say which by making it the Holder, "+
			"as in holding.Holder = &holding.Readers[0], or of Permits", len(several))
	case holder == nil:
		return fmt.Errorf("%w: nobody held it when Inspect looked", ErrNotHeld)
	case holder.By != "":
		return l.breakClaim(ctx, holding)
	case holder.Prepared != "":
		return fmt.Errorf("the prepared transaction %q has it, which belongs to no session: ROLLBACK PREPARED or "+
			"COMMIT PREPARED ends it", truncate(holder.Prepared))
	case holder.ID == "":
		return errors.New("it was held, and the server did not say by which session, so none was ended: inspect this " +
			"key alone, where the user, the server and the pool have a few connections to spare")
	}
	err = inspector.End(ctx, holding.Holder.party)
	if errors.Is(err, dialects.ErrChanged) {
		return fmt.Errorf("%w: session %s does not hold it any more", ErrNotHeld, holding.Holder.ID)
	}
	if err == nil {
		l.config.logger.WarnContext(ctx, "txlock: ended the session of a holder", "lock", holding.name(), "session",
			holding.Holder.ID)
	}
	return err
}

// name says what is locked, for errors.
func (h Holding) name() string {
	switch {
	case h.Column != "" && h.Key != "": // a kind: rows have no key
		return h.Column + " " + nameOf([]string{h.Key})
	case h.Column != "":
		return nameOfRows(h.Table, h.Column, []any{h.Row})
	case h.Key != "":
		return nameOf([]string{h.Key})
	}
	return fmt.Sprintf("slot %s of %s", h.Row, truncate(h.Table))
}
