package txlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
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

	known string // of a semaphore or an election: its name in the table, or what stands for that
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
	token int64 // of a claim
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
	holdings := []Holding{}
	for _, kind := range []dialects.Kind{dialects.KindRow, dialects.KindSemaphore, dialects.KindElection} {
		states, err := l.driver.Inspect(ctx, dialects.Inspection{
			Kind: kind, Table: *found, Slots: only, Names: hashesOf(keys),
		})
		if err != nil {
			return nil, err
		}
		here := l.waitingHere() // later: who has gone from the process to the server meanwhile counts once
		for _, state := range states {
			if only == nil || kind != dialects.KindRow || state.Column == "" && slices.ContainsFunc(
				only, func(slot int) bool { return strconv.Itoa(slot) == state.Value }) {
				holdings = append(holdings, l.holdingOf(state, found.Slots, here))
			}
		}
	}
	blankAmbiguous(holdings)
	for i := range holdings {
		holdings[i].nameKey(keys)
	}
	claims, err := l.heldClaims(ctx, found.Name, keys)
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

// kindColumns stand where locks of rows have the name of a column.
var kindColumns = map[dialects.Kind]string{
	dialects.KindSemaphore: semaphoreColumn, dialects.KindElection: electionColumn,
}

// holdingOf puts together what the server shows and what this Locker knows: here is how many
// callers wait in it.
func (l *Locker[Tx]) holdingOf(state dialects.RowState, slots int, here map[row]int) Holding {
	h := Holding{Table: l.config.table, Column: state.Column, Row: state.Value}
	locked := row{state.Table, cmp.Or(state.Column, slotColumn), state.Value}
	if column, named := kindColumns[state.Named.Kind]; named {
		h.Column, h.Row, h.known = column, state.Named.Hash, knownName(state.Named)
		locked = row{h.Table, h.Column, h.Row}
	} else if state.Column != "" {
		h.Table = state.Table
	}
	holders := func(parties []dialects.Party) (sessions []Session) {
		for _, party := range parties {
			holder, claim := sessionOf(party, state, slots)
			holder.grantedBy(claim)
			sessions = append(sessions, holder)
		}
		return sessions
	}
	if state.Holder != nil {
		h.Holder = &holders([]dialects.Party{*state.Holder})[0]
	}
	unknown := slices.Repeat([]Session{{Shared: true}}, state.Sharing)
	h.Readers, h.Permits = append(holders(state.Readers), unknown...), holders(state.Permits)
	for _, party := range state.Waiters {
		waiter, _ := sessionOf(party, state, slots)
		h.Waiters = append(h.Waiters, waiter)
	}
	h.addUp()
	h.Behind = max(h.Behind, here[locked])
	return h
}

// addUp counts those who wait in processes. The sessions of one process tell of the same callers.
func (h *Holding) addUp() {
	type process struct {
		host   string
		number int
	}
	most := map[process]int{}
	note := func(s Session) {
		host, _, err := net.SplitHostPort(s.Host)
		if err != nil {
			host = s.Host
		}
		p := process{host, s.Process}
		h.Behind += max(s.Behind-most[p], 0)
		most[p] = max(most[p], s.Behind)
	}
	for s := range h.sessions() {
		note(*s)
	}
}

// sessions are the holders and the waiters.
func (h *Holding) sessions() iter.Seq[*Session] {
	return func(yield func(*Session) bool) {
		if h.Holder != nil && !yield(h.Holder) {
			return
		}
		for _, some := range [][]Session{h.Readers, h.Permits, h.Waiters} {
			for i := range some {
				if !yield(&some[i]) {
					return
				}
			}
		}
	}
}

func sessionOf(party dialects.Party, row dialects.RowState, slots int) (s Session, granted *dialects.Claim) {
	key, claim := claimed(party.Claims, row, slots)
	s = Session{
		ID: party.Session, Key: key, Application: party.Application, Host: party.Host, Process: party.Process,
		User:     party.User,
		Database: party.Database, Since: party.Since, For: party.For, Idle: party.Idle, Statement: party.Statement,
		Permit: party.Permit, Shared: party.Shared, party: party,
	}
	if claim != nil {
		s.Behind = claim.Behind
	}
	return s, claim
}

// blankAmbiguous blanks the beginning of a key that one session shows for several slots: nobody
// knows which of them it belongs to.
func blankAmbiguous(holdings []Holding) {
	type shown struct{ session, key string }
	count := map[shown]int{}
	each := func(visit func(key *string, by shown)) {
		for i := range holdings {
			for s := range holdings[i].sessions() {
				visit(&s.Key, shown{s.ID, s.Key})
			}
		}
	}
	each(func(_ *string, by shown) { count[by]++ })
	each(func(key *string, by shown) {
		if strings.HasSuffix(*key, "…") && count[by] > 1 {
			*key = ""
		}
	})
}

// isSemaphore and isElection look at the key as well: rows may have columns of these names.
func (h *Holding) isSemaphore() bool { return h.Column == semaphoreColumn && h.Key != "" }
func (h *Holding) isElection() bool  { return h.Column == electionColumn && h.Key != "" }

// nameKey is what the holder named, else the first other session that says so. A semaphore and an
// election have the name that the caller of Inspect named, else that in their table.
func (h *Holding) nameKey(keys []string) {
	h.Key = h.known
	if h.known != "" {
		for _, key := range keys {
			if hashOf(key) == h.Row {
				h.Key = key
			}
		}
		return
	}
	for s := range h.sessions() {
		h.Key = cmp.Or(h.Key, s.Key)
	}
}

// grantedBy moves Since from the begin of the transaction to the grant of the lock.
func (s *Session) grantedBy(claim *dialects.Claim) {
	if claim == nil || !claim.Granted || s.Since.IsZero() {
		return
	}
	begun := s.Since
	if s.Since = claim.At; s.Since.IsZero() {
		s.Since = begun.Add(claim.After)
	}
	s.For = max(s.For-s.Since.Sub(begun), 0)
}

// claimed finds the claim that names the row, and the key in it that hashes to the row's slot. The
// beginning of a key may belong to any slot: it counts when nothing else does. A key that is hidden
// is empty.
func claimed(claims []dialects.Claim, row dialects.RowState, slots int) (key string, of *dialects.Claim) {
	for i := range claims {
		claim := &claims[i]
		for j, item := range claim.Items {
			cut := claim.Cut && j == len(claim.Items)-1
			switch {
			case row.Named.Kind == dialects.KindSemaphore:
				hash, name := row.Named.Hash, keyOf(row.Named.Name)
				if claim.Permits > 0 && (hashOf(item) == hash || cut && name != "" && strings.HasPrefix(name, item)) {
					return cmp.Or(name, item), claim
				}
				if claim.Permits > 0 && item == hiddenHash(hash) {
					return "", claim
				}
			case claim.Permits > 0:
			case row.Column != "":
				if claim.Table == row.Table && claim.Column == row.Column && item == row.Value {
					return "", claim
				}
			case claim.Table != "" || item == "":
			case cut:
				if key, of = "", claim; !strings.HasPrefix(item, hiddenPrefix) {
					key = item + "…"
				}
			case strconv.Itoa(dialects.SlotOf(item, slots)) == row.Value:
				return item, claim
			case item == hiddenPrefix+row.Value:
				return "", claim
			}
		}
	}
	return key, of
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
