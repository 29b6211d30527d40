package txlock

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"

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
	Holder  *Session
	Readers []Session // see [Mutex.Shared]; on MariaDB some may be empty, as Holder may
	Waiters []Session // in the order of the queue
	// Permits are the sessions that hold a permit each, of a [Locker.Semaphore]: Column is
	// "semaphore", Row a hash of its key. Of a [Locker.Election], Column is "election", and Holder
	// leads it. Of a [Locker.Claim], Column is "claim", and Holder has no session: By says who has
	// it, and Until for how long. For a hidden name, Key is what the caller named, else "~", the
	// beginning of the hash, and "…".
	Permits []Session
}

// Session is a session of the server, as the server shows it.
type Session = dialects.Party

// Inspect returns what is held or awaited, by whichever process: slots of the lock table, in order,
// then, by column, rows of [Locker.Rows], claims, elections and semaphores; with keys, those of
// these names alone. It is a picture of a moment, and changes nothing. MariaDB lists only what
// somebody waits for: there it waits for a moment for what keys name. docs/inspect.md says what
// each server shows, and to whom.
func (l *Locker[Tx]) Inspect(ctx context.Context, keys ...string) (holdings []Holding, err error) {
	defer func() {
		l.invalidate(err)
		err = wrap("inspect", err)
	}()
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
	entries, err := inspector.Inspect(ctx, of)
	if err != nil {
		return nil, err
	}
	claims, err := l.heldClaims(ctx, found.Kinds.Claims, of.Names)
	if err != nil {
		return nil, err
	}
	for _, h := range l.holdingsOf(append(entries, claims...), of, keys) {
		if h.Holder != nil {
			h.Key = cmp.Or(h.Key, h.Holder.Key)
		}
		for _, s := range slices.Concat(h.Readers, h.Waiters) {
			h.Key = cmp.Or(h.Key, s.Key)
		}
		holdings = append(holdings, *h)
	}
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

// row is a row of a table, or what has rows of its own.
type row struct{ table, column, value string }

// holdingsOf puts together what was asked for: entries of a row, and those of a semaphore. A
// session counts once for a row: if it waits to own what it shares, it waits.
func (l *Locker[Tx]) holdingsOf(entries []dialects.Entry, of dialects.Inspection, keys []string) map[row]*Holding {
	// Who waits comes first, then who has the row alone.
	rank := func(e dialects.Entry) string { return fmt.Sprint(!e.Waits, !e.Waits && e.Shared) }
	slices.SortStableFunc(entries, func(a, b dialects.Entry) int { return cmp.Compare(rank(a), rank(b)) })
	holdings, seen := map[row]*Holding{}, map[[6]string]bool{}
	for _, e := range entries {
		at, key := row{cmp.Or(e.Table, l.config.table), e.Column, e.Value}, ""
		wanted := of.Names == nil || e.Table == "" && slices.Contains(of.Slots, e.Value)
		if e.Kind != dialects.KindRow {
			at.column, at.value, key = string(e.Kind), e.Hash, label.Known(e.Hash, e.Name)
			named := slices.Index(of.Names, e.Hash)
			if wanted = of.Names == nil || named >= 0; named >= 0 {
				key = keys[named]
			}
			wanted = wanted && !(e.Kind == dialects.KindSemaphore && e.Shared) // who shares it only looks
		}
		who := [...]string{at.table, at.column, at.value, e.Value, e.ID, e.Prepared}
		if !wanted || seen[who] {
			continue
		}
		seen[who] = true
		if holdings[at] == nil {
			holdings[at] = &Holding{Table: at.table, Column: at.column, Row: at.value, Key: key}
		}
		holdings[at].add(e)
	}
	return holdings
}

// add adds an entry, behind all that wait if it does not.
func (h *Holding) add(e dialects.Entry) {
	switch party := e.Party; {
	case e.Waits:
		h.Waiters = append(h.Waiters, party)
	case e.Kind == dialects.KindSemaphore && e.Permit == locktable.QueuePermit:
		h.Waiters = slices.Insert(h.Waiters, 0, party)
	case e.Kind == dialects.KindSemaphore:
		party.Permit = e.Permit
		h.Permits = append(h.Permits, party)
		slices.SortFunc(h.Permits, func(a, b Session) int { return cmp.Compare(a.Permit, b.Permit) })
	case e.Shared:
		h.Readers = append(h.Readers, party)
	case h.Holder == nil:
		h.Holder = &party
	}
}

// heldClaims are all that are held, or those of these hashes. An installation from before there
// were claims has none, and its users may read none.
func (l *Locker[Tx]) heldClaims(ctx context.Context, sql dialects.ClaimSQL, hashes []string) (
	entries []dialects.Entry, err error,
) {
	queries := []dialects.Query{sql.List}
	for i, digits := range hashes {
		hash, _ := hex.DecodeString(digits)
		queries = append(queries[:i], sql.Read.With(hash))
	}
	var lines []string
	for _, q := range queries {
		more, failed := l.driver.Run(ctx, q) // which forgets no lock table
		lines, err = append(lines, more...), cmp.Or(err, failed)
	}
	if errors.Is(err, ErrNotInstalled) || errors.Is(err, dialects.ErrNotPermitted) {
		return nil, nil
	}
	for _, line := range lines {
		row := claimRowOf(line)
		hash := hex.EncodeToString([]byte(row.hash))
		entries = append(entries, dialects.Entry{Kind: dialects.KindClaim, Hash: hash, Name: row.name, Party: Session{
			Transaction: strconv.FormatInt(row.Token, 10), By: row.By, Since: row.Since, Until: row.Until,
			For: row.Until.Add(-row.left).Sub(row.Since),
		}})
	}
	return entries, err
}

// Break ends the session of the Holder, and the lock with it. Of several Readers or Permits, make
// one the Holder first. A claim ends behind a Do of its holder that is under way. It is
// [ErrNotHeld], and nothing ends, when the session has left the transaction that Inspect showed.
// docs/operations.md says who may do it.
func (l *Locker[Tx]) Break(ctx context.Context, holding Holding) (err error) {
	where := "break"
	if holding.Table != "" {
		where += " the lock on " + holding.name()
	}
	defer func() { err = wrap(where, err) }()
	inspector, err := l.inspector()
	if err != nil {
		return err
	}
	several := slices.Concat(holding.Readers, holding.Permits)
	if holding.Holder == nil && len(several) == 1 {
		holding.Holder = &several[0]
	}
	switch holder := holding.Holder; {
	case holding.Table == "":
		return fmt.Errorf("%w: this is no Holding of Inspect", ErrNotHeld)
	case holder == nil && len(several) > 0:
		return fmt.Errorf("%d sessions hold it together, and none was ended: say which by making it the Holder, "+
			"as in holding.Holder = &holding.Readers[0], or of Permits", len(several))
	case holder == nil:
		return fmt.Errorf("%w: nobody held it when Inspect looked", ErrNotHeld)
	case holder.By != "":
		return l.breakClaim(ctx, holding)
	case holder.Prepared != "":
		return fmt.Errorf("the prepared transaction %.64q has it, which belongs to no session: ROLLBACK PREPARED or "+
			"COMMIT PREPARED ends it", holder.Prepared)
	case holder.ID == "":
		return errors.New("it was held, and the server did not say by which session, so none was ended: inspect this " +
			"key alone, where the user, the server and the pool have a few connections to spare")
	}
	switch err = inspector.End(ctx, *holding.Holder); {
	case errors.Is(err, dialects.ErrChanged):
		return fmt.Errorf("%w: session %s does not hold it any more", ErrNotHeld, holding.Holder.ID)
	case err == nil:
		l.config.logger.WarnContext(ctx, "txlock: ended the session of a holder", "lock", holding.name(), "session",
			holding.Holder.ID)
	}
	return err
}

func (l *Locker[Tx]) breakClaim(ctx context.Context, h Holding) error {
	hash, _ := hex.DecodeString(h.Row)
	token, _ := strconv.ParseInt(h.Holder.Transaction, 10, 64)
	held := &Claimed[Tx]{claim: l.claim(h.Key, string(hash)), by: h.Holder.By, token: token}
	_, err := held.move(Apart(ctx), "Claim.Break", 0)
	switch {
	case errors.Is(err, ErrClaimEnded):
		return fmt.Errorf("%w: %q does not have it any more", ErrNotHeld, h.Holder.By)
	case err == nil:
		l.config.logger.WarnContext(ctx, "txlock: ended a claim", "lock", h.name(), "by", h.Holder.By)
	}
	return err
}

// name says what is locked, for errors.
func (h Holding) name() string {
	switch {
	case h.Column != "" && h.Key != "": // a kind: rows have no key
		return h.Column + " " + nameOf([]string{h.Key})
	case h.Column != "":
		return nameOfRows(h.Table, h.Column, h.Row)
	case h.Key != "":
		return nameOf([]string{h.Key})
	}
	return fmt.Sprintf("slot %s of %.64s", h.Row, h.Table)
}
