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
	"github.com/txlock/txlock/internal/holders"
	"github.com/txlock/txlock/internal/label"
)

// Holding is a row that a session holds, or that sessions wait for.
type Holding struct {
	// Table is the lock table, or that of [Locker.Rows], as its user spells it.
	Table string
	// Column and Row are the column of Rows and its value. For a key, Column is empty and Row is
	// the number of the slot.
	Column, Row string
	// Key is what the holder named, else what the first reader or waiter named that says so. It is
	// empty for Rows, and where no session says it, see [WithHiddenKeys]. Some servers have room
	// for its beginning only: "…" follows then.
	Key string
	// Holder is nil while the row passes from one session to the next. On MariaDB it may be empty:
	// the row is held, and the server did not say by whom, see [Locker.Inspect].
	Holder *Session
	// Readers are those that share the row, see [Mutex.Shared]. Holder is nil then. On MariaDB some
	// of them may be empty, as Holder may.
	Readers []Session
	Waiters []Session // in the order of the queue
	// Permits are the sessions that hold a permit each, of a [Locker.Semaphore]. Then Column is
	// "semaphore", Row is a hash of its key, and Holder is nil. To break one, set Holder to it. Of
	// a [Locker.Election], Column is "election", Row a hash of its name, Key its name, and Holder
	// leads it. [Election.Leader] has the identity. For a name that is hidden, Key is what the
	// caller of Inspect named, else "~", the beginning of the hash, and "…".
	//
	// Of a [Locker.Claim], Column is "claim", Row a hash of its key, and Holder has no session: By
	// says who has it, and Until for how long.
	Permits []Session
	// Behind is how many more callers wait inside the processes of these sessions: the largest
	// count of each process, added up. Two clients that show the same host and process number count
	// as one. Session.Behind says how old a count is. That of this Locker is as of now.
	Behind int
}

// Session is a session of the server, as the server shows it. What the server does not show to this
// role is empty.
type Session struct {
	// ID is the server's number for the session: the backend's process on PostgreSQL, the
	// connection on MySQL and MariaDB. It is empty when nobody knows which session it is.
	ID          string
	Permit      int    // of a semaphore, that it holds
	Key         string // what it named, when it says so
	Application string
	Host        string // of the client, with its port where the server shows one: never on MySQL
	Process     int    // of the client, on its host
	User        string
	Database    string
	Shared      bool      // it shares the row, or waits to share it
	By          string    // who has a claim
	Until       time.Time // its end, by the server's clock; over while its holder is in a Do
	// Since is when the lock was granted, by the server's clock. Where that is not known it is when
	// the transaction began. Of a waiter it is when the wait began. For is how long ago that is, by
	// the same clock. Where the server shows neither, Since.IsZero and For is 0.
	Since time.Time
	For   time.Duration
	// Idle says that the session runs no statement. False means unknown where Since is not known.
	// Statement is what it runs, or ran last.
	Idle      bool
	Statement string
	// Behind is how many callers of its process wait for the same rows without a session, see
	// [WithQueue]. The count is as old as the session's last statement for the lock: for a waiter,
	// and for the session of a Do, it is that of the beginning. A holder by Lock tells it anew with
	// each heartbeat, half a minute apart at most. 0 may mean that it is not shown.
	Behind int

	party dialects.Party

	token  int64  // of a claim
	secret *int64 // of a claim: behind a pointer, it does not come into a log with the Session
}

// Inspect returns what is held or awaited, by whichever process: slots of the lock table, in the
// order of their numbers, and then, by column, rows of [Locker.Rows] that sessions of txlock lock,
// claims, elections and semaphores. With keys it returns their slots alone, and claims, elections
// and semaphores of these names. It is a picture of a moment, and changes nothing.
//
// No superuser is needed. On PostgreSQL, members of pg_read_all_stats see what sessions of other
// roles run, since when and from where. On MySQL it needs SELECT on performance_schema, which must
// be on. On MariaDB it needs PROCESS.
//
// MariaDB does not list a slot that nobody waits for. Inspect finds such slots by trying, and their
// holders by waiting for a moment, on up to four further connections. That takes 5 s at most, or
// half of what ctx leaves; semaphores and elections may each take as long. Calls at the same time
// take turns. A slot whose holder is not found, for want of time or of connections, has a Holder
// without an ID. docs/operations.md has the statements, and what each server does not show.
func (l *Locker[Tx]) Inspect(ctx context.Context, keys ...string) ([]Holding, error) {
	holdings, err := l.inspect(ctx, keys)
	if err != nil {
		l.invalidate(err)
		return nil, fmt.Errorf("txlock: inspect: %w", err)
	}
	return holdings, nil
}

func (l *Locker[Tx]) inspect(ctx context.Context, keys []string) ([]Holding, error) {
	if err := l.ready(); err != nil {
		return nil, err
	}
	found, err := l.find(ctx, false)
	if err != nil {
		return nil, err
	}
	var only []int
	for _, key := range keys {
		if key == "" {
			return nil, errors.New("a key is empty")
		}
		only = append(only, dialects.SlotOf(key, found.Slots))
	}
	states, err := l.rowStates(ctx, *found, only, keys)
	if err != nil {
		return nil, err
	}
	here := l.waitingHere() // later: who has gone from the process to the server meanwhile counts once
	holdings := make([]Holding, 0, len(states))
	for _, row := range holders.Of(states, found.Slots, keys) {
		holdings = append(holdings, l.holdingOf(row, here))
	}
	claims, err := l.heldClaims(ctx, keys)
	if err != nil {
		return nil, err
	}
	holdings = append(holdings, claims...)
	slices.SortFunc(holdings, func(a, b Holding) int {
		return cmp.Or(cmp.Compare(a.Column, b.Column), cmp.Compare(a.Table, b.Table),
			cmp.Compare(len(a.Row), len(b.Row)), cmp.Compare(a.Row, b.Row))
	})
	return holdings, nil
}

// rowStates are what the server shows of rows, or of these slots, and of semaphores and elections,
// or of those with these names.
func (l *Locker[Tx]) rowStates(ctx context.Context, table dialects.LockTable, slots []int, names []string) (
	all []dialects.RowState, err error,
) {
	var hashes []string
	for _, name := range names {
		hashes = append(hashes, label.Hash(name))
	}
	for _, kind := range []dialects.Kind{dialects.KindRow, dialects.KindSemaphore, dialects.KindElection} {
		states, err := l.driver.Inspect(ctx, dialects.Inspection{Kind: kind, Table: table, Slots: slots, Names: hashes})
		if err != nil {
			return nil, err
		}
		if slots != nil && kind == dialects.KindRow {
			states = slices.DeleteFunc(states, func(state dialects.RowState) bool {
				return state.Column != "" ||
					!slices.ContainsFunc(slots, func(slot int) bool { return strconv.Itoa(slot) == state.Value })
			})
		}
		all = append(all, states...)
	}
	return all, nil
}

// holdingOf adds to what the server shows how many callers wait here.
func (l *Locker[Tx]) holdingOf(r holders.Row, here map[row]int) Holding {
	h := Holding{
		Table: l.config.table, Column: r.Column, Row: r.Value, Key: r.Key, Readers: sessionsOf(r.Readers),
		Permits: sessionsOf(r.Permits), Waiters: sessionsOf(r.Waiters),
	}
	locked := row{r.Table, cmp.Or(r.Column, slotColumn), r.Value}
	switch r.Named.Kind {
	case dialects.KindSemaphore:
		h.Column, h.Row = semaphoreColumn, r.Named.Hash
		locked = row{h.Table, h.Column, h.Row}
	case dialects.KindElection:
		h.Column, h.Row = electionColumn, r.Named.Hash
		locked = row{h.Table, h.Column, h.Row}
	case dialects.KindRow:
		if r.Column != "" {
			h.Table = r.Table
		}
	}
	if r.Holder != nil {
		h.Holder = &sessionsOf([]holders.Party{*r.Holder})[0]
	}
	h.Readers = append(h.Readers, slices.Repeat([]Session{{Shared: true}}, r.Sharing)...)
	h.Behind = max(r.Behind, here[locked])
	return h
}

func sessionsOf(parties []holders.Party) (sessions []Session) {
	for _, p := range parties {
		sessions = append(sessions, Session{
			ID: p.Session, Permit: p.Permit, Key: p.Key, Application: p.Application, Host: p.Host, Process: p.Process,
			User: p.User, Database: p.Database, Shared: p.Shared, Since: p.Since, For: p.For, Idle: p.Idle,
			Statement: p.Statement, Behind: p.Behind, party: p.Party,
		})
	}
	return sessions
}

// Break ends the session of the Holder. The server undoes what the session has not committed, and
// gives the lock to the next in the queue. The session's process learns of the loss as of any
// other. Nil means that the session has ended, and the lock with it.
//
// Of several Readers, make the one to end the Holder first: h.Holder = &h.Readers[0]. The others
// keep the lock. A single one is ended without that.
//
// A claim has no session: Break ends the claim, behind a Do of its holder that is under way. The
// holder's next call is [ErrLost].
//
// Break ends nothing, and is [ErrNotHeld], when the session has left the transaction that Inspect
// showed, or on PostgreSQL has released the lock with a savepoint. For a Holder without an ID it is
// another error: nobody knows which session to end.
//
// Who may do it: on PostgreSQL the session's own role, and members of pg_signal_backend; on MySQL
// and MariaDB the same user, and who has CONNECTION_ADMIN (MySQL, with SYSTEM_USER for sessions of
// users that have it) or CONNECTION ADMIN (MariaDB).
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
	if err := l.ready(); err != nil {
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
	case holder.ID == "" && holding.isSemaphore():
		return errors.New("the permit was held, and the server did not say by which session, so none was ended")
	case holder.ID == "" && holding.isElection():
		return errors.New("the server did not say which session leads, so none was ended")
	case holder.ID == "":
		return fmt.Errorf("slot %s of %s was held, and the server did not say by which session, so none was ended: "+
			"inspect this key alone, "+
			"where the user, the server and the pool have a few connections to spare", holding.Row,
			truncate(holding.Table))
	}
	err := l.driver.End(ctx, holding.Holder.party)
	if errors.Is(err, dialects.ErrChanged) {
		return fmt.Errorf("%w: session %s does not hold it any more", ErrNotHeld, holding.Holder.ID)
	}
	if err == nil {
		l.config.logger.WarnContext(ctx, "txlock: ended the session of a holder", "lock", holding.name(), "session",
			holding.Holder.ID)
	}
	return err
}

// isSemaphore and isElection look at the key as well: rows may have columns of these names.
func (h *Holding) isSemaphore() bool { return h.Column == semaphoreColumn && h.Key != "" }
func (h *Holding) isElection() bool  { return h.Column == electionColumn && h.Key != "" }

// name says what is locked, for errors.
func (h Holding) name() string {
	switch {
	case h.isSemaphore():
		return "semaphore " + nameOf([]string{h.Key})
	case h.isElection():
		return "election " + nameOf([]string{h.Key})
	case h.Column == claimColumn && h.Holder != nil && h.Holder.By != "":
		return "claim " + nameOf([]string{h.Key})
	case h.Column != "":
		return nameOfRows(h.Table, h.Column, []any{h.Row})
	case h.Key != "":
		return nameOf([]string{h.Key})
	}
	return fmt.Sprintf("slot %s of %s", h.Row, truncate(h.Table))
}
