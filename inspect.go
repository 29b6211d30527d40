package txlock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
)

// Holding is a row that a session holds, or that sessions wait for.
type Holding struct {
	Table string // the lock table, or that of [Locker.Rows], as its user spells it
	// Column of Rows, and Row, its value there; of a key, Column is empty and Row the number of its
	// slot.
	Column, Row string
	// Key is what the holder named, when it says so, else what the first waiter named that does. Of
	// Rows it is empty. Where a server has little room for it only its beginning is known, and "…"
	// follows.
	Key string
	// Holder is nil when the row passes from one to the next just now. Its ID is empty, and all the
	// rest, when the row is held and the server did not say by whom, which is only so on MariaDB:
	// see [Locker.Inspect].
	Holder  *Session
	Waiters []Session // in the order of the queue
}

// Session is a session of the server, as the server shows it. What it does not show to this role is
// empty.
type Session struct {
	// the server's number for it: the backend's process on PostgreSQL, the connection on MySQL and
	// MariaDB; empty: not known who
	ID          string
	Key         string // what it named, when it says so
	Application string
	// of the client, with its port if the server shows that: MySQL does not, and through a socket
	// there is none
	Host     string
	Process  int // of the client, there
	User     string
	Database string
	// Since is when the lock was granted, by the server's clock, and where that is not known when
	// the transaction began; of a waiter, when its wait began. For is how long ago that is, by the
	// same clock. Where the server shows neither, Since.IsZero and For is 0.
	Since time.Time
	For   time.Duration
	// Idle says that it runs no statement: true is what the server says, and so is false if Since
	// is known; else false may be that this role is not shown it. Statement is what it runs, or ran
	// last.
	Idle      bool
	Statement string

	party dialects.Party
}

// Inspect returns the rows that are held or awaited, by whichever process, in the order of their
// numbers: slots of the lock table, whoever locks them, and the rows of Rows of sessions that
// txlock runs in. With keys it returns those of their slots alone. It is a picture of a moment, in
// which a lock may change hands, and it changes nothing.
//
// No superuser is needed. On PostgreSQL, what sessions of other roles run, since when and from
// where is shown to members of pg_read_all_stats. On MySQL it needs SELECT on performance_schema,
// which must be on. On MariaDB it needs PROCESS; there a slot that nobody waits for is found by
// trying, and its holder by waiting for it for a moment, on up to four further connections. That
// takes 5 s at most, or half of what ctx leaves; calls at the same time take turns in it, picture
// by picture. A slot whose holder is not found, for want of time or of such connections say, is
// returned with a Holder that has no ID. docs/operations.md has the statements, and what each
// server does not show.
func (l *Locker[Tx]) Inspect(ctx context.Context, keys ...string) ([]Holding, error) {
	holdings, err := l.inspect(ctx, keys)
	if err != nil {
		return nil, fmt.Errorf("txlock: inspect: %w", err)
	}
	return holdings, nil
}

func (l *Locker[Tx]) inspect(ctx context.Context, keys []string) ([]Holding, error) {
	if err := l.ready(); err != nil {
		return nil, err
	}
	slots, err := l.slotCount(ctx, false)
	if err != nil {
		return nil, err
	}
	var only []int
	for _, key := range keys {
		if key == "" {
			return nil, errors.New("a key is empty")
		}
		only = append(only, slotOf(sumOf(key), slots))
	}
	rows, err := l.driver.Inspect(ctx, l.config.table, slots, only)
	if err != nil {
		return nil, err
	}
	holdings := make([]Holding, 0, len(rows))
	for _, row := range rows {
		if only != nil && (row.Column != "" || !slices.ContainsFunc(
			only, func(slot int) bool { return strconv.Itoa(slot) == row.Value })) {
			continue
		}
		holdings = append(holdings, holdingOf(row, slots))
	}
	forgetAmbiguous(holdings)
	slices.SortFunc(holdings, func(a, b Holding) int {
		return cmp.Or(cmp.Compare(a.Column, b.Column), cmp.Compare(a.Table, b.Table),
			cmp.Compare(len(a.Row), len(b.Row)), cmp.Compare(a.Row, b.Row))
	})
	return holdings, nil
}

func holdingOf(row dialects.RowState, slots int) Holding {
	h := Holding{Table: row.Table, Column: row.Column, Row: row.Value}
	if row.Holder != nil {
		holder, claim := sessionOf(*row.Holder, row, slots)
		holder.grantedBy(claim)
		h.Holder = &holder
	}
	for _, party := range row.Waiters {
		waiter, _ := sessionOf(party, row, slots)
		h.Waiters = append(h.Waiters, waiter)
	}
	return h
}

func sessionOf(party dialects.Party, row dialects.RowState, slots int) (s Session, granted *dialects.Claim) {
	key, claim := claimed(party.Claims, row, slots)
	return Session{
		ID: party.Session, Key: key, Application: party.Application, Host: party.Host, Process: party.Process,
		User:     party.User,
		Database: party.Database, Since: party.Since, For: party.For, Idle: party.Idle, Statement: party.Statement,
		party: party,
	}, claim
}

// forgetAmbiguous blanks the beginning of a key that one session shows for several slots: of which
// it is is not known.
func forgetAmbiguous(holdings []Holding) {
	type shown struct{ session, key string }
	count := map[shown]int{}
	each := func(visit func(key *string, by shown)) {
		for i := range holdings {
			h := &holdings[i]
			if h.Holder != nil {
				visit(&h.Holder.Key, shown{h.Holder.ID, h.Holder.Key})
			}
			for j := range h.Waiters {
				visit(&h.Waiters[j].Key, shown{h.Waiters[j].ID, h.Waiters[j].Key})
			}
		}
	}
	each(func(_ *string, by shown) { count[by]++ })
	each(func(key *string, by shown) {
		if strings.HasSuffix(*key, "…") && count[by] > 1 {
			*key = ""
		}
	})
	for i := range holdings {
		holdings[i].nameKey()
	}
}

// nameKey is what the holder named, else the first waiter that says so.
func (h *Holding) nameKey() {
	h.Key = ""
	if h.Holder != nil {
		h.Key = h.Holder.Key
	}
	for _, waiter := range h.Waiters {
		h.Key = cmp.Or(h.Key, waiter.Key)
	}
}

// grantedBy makes Since, the begin of the transaction, the time at which the lock was granted.
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

// claimed is the claim that names the row, and the key there that hashes to its slot. A key of
// which only the beginning is known may be of any slot: it is taken when no other is.
func claimed(claims []dialects.Claim, row dialects.RowState, slots int) (key string, of *dialects.Claim) {
	for i := range claims {
		claim := &claims[i]
		for j, item := range claim.Items {
			cut := claim.Cut && j == len(claim.Items)-1
			switch {
			case row.Column != "":
				if claim.Table == row.Table && claim.Column == row.Column && item == row.Value {
					return "", claim
				}
			case claim.Table != "" || item == "":
			case cut:
				key, of = item+"…", claim
			case strconv.Itoa(slotOf(sumOf(item), slots)) == row.Value:
				return item, claim
			}
		}
	}
	return key, of
}

// Break ends the session that holds, and the server then gives the lock to the next in the queue.
// What the session has not committed is undone; its process learns of the loss as of any other. It
// ends nothing, and is [ErrNotHeld], when the session is not in the transaction any more that
// Inspect showed, and on PostgreSQL also when that has released the lock with a savepoint. Of a
// Holder without an ID, of which nobody knows which session to end, it is another error. Nil means
// that the session has ended, and the lock with it.
//
// On PostgreSQL this takes the same role as the session's, or membership in pg_signal_backend; on
// MySQL and MariaDB the same user, or CONNECTION_ADMIN (MySQL; for the sessions of users that have
// SYSTEM_USER that as well), CONNECTION ADMIN (MariaDB).
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
	switch holder := holding.Holder; {
	case holding.Table == "" || holder != nil && holder.ID != holder.party.Session:
		return fmt.Errorf("%w: this is no Holding of Inspect", ErrNotHeld)
	case holder == nil:
		return fmt.Errorf("%w: nobody held it when Inspect looked", ErrNotHeld)
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
	case h.Column != "":
		return nameOfRows(h.Table, h.Column, []any{h.Row})
	case h.Key != "":
		return nameOf([]string{h.Key})
	}
	return fmt.Sprintf("slot %s of %s", h.Row, truncate(h.Table))
}
