package txlock

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// Claimed is a claim that was taken. It may have ended since; every call asks the database. Many
// goroutines may use it.
type Claimed[Tx any] struct {
	claim         *Claim[Tx]
	by            string
	token, secret int64
	until         *atomic.Int64 // in microseconds
}

func atomicTime(t time.Time) *atomic.Int64 {
	var micros atomic.Int64
	micros.Store(t.UnixMicro())
	return &micros
}

// claimText begins the text of a claim.
const claimText = "claim1"

// String is the claim as a text of letters, digits, "-", "_" and ".", for a cookie, a job's payload
// or another process: [Locker.Claimed] reads it. It has a random number of 63 bits, drawn with the
// claim. Errors, Inspect and logs of txlock do not show it, so nobody makes the text of another's
// claim from them: an even chance takes 2⁶² guesses, each of which asks the database. Who may read
// the table of claims, or the statements of all sessions, can. Whoever has the text can use the
// claim: give it to nobody who may not.
func (h *Claimed[Tx]) String() string {
	encode := base64.RawURLEncoding.EncodeToString
	return strings.Join([]string{
		claimText, strconv.FormatInt(h.token, 10), strconv.FormatInt(h.until.Load(), 10), encode([]byte(h.claim.key)),
		encode([]byte(h.by)), strconv.FormatInt(h.secret, 10),
	}, ".")
}

// Claimed reads the text of [Claimed.String]. It checks the form and sends nothing. Holder, token
// and secret are compared with the claim's by the database, in each call: until one has succeeded,
// Key, By and Token are what somebody says. A text that was changed, or is of another lock table,
// is [ErrClaimEnded].
func (l *Locker[Tx]) Claimed(text string) (*Claimed[Tx], error) {
	fields := strings.Split(text, ".")
	if len(fields) != 6 || fields[0] != claimText {
		return nil, errClaimText
	}
	token, badToken := strconv.ParseInt(fields[1], 10, 64)
	until, badUntil := strconv.ParseInt(fields[2], 10, 64)
	key, badKey := base64.RawURLEncoding.DecodeString(fields[3])
	by, badBy := base64.RawURLEncoding.DecodeString(fields[4])
	secret, badSecret := strconv.ParseInt(fields[5], 10, 64)
	if err := cmp.Or(badToken, badUntil, badKey, badBy, badSecret); err != nil || token < 1 || !mayHold(string(by)) {
		return nil, errClaimText
	}
	c := l.Claim(string(key))
	if c.mutex.err != nil {
		return nil, errClaimText
	}
	return &Claimed[Tx]{c, string(by), token, secret, atomicTime(time.UnixMicro(until))}, nil
}

var errClaimText = errors.New("txlock: the text is no claim: it is not what String of a Claimed returns")

// Key is the key of the claim.
func (h *Claimed[Tx]) Key() string { return h.claim.key }

// By is who has taken the claim.
func (h *Claimed[Tx]) By() string { return h.by }

// Token increases with every claim of this key that is taken: see [Lock.Token]. Extending a claim
// does not change it. Tokens of other keys, and of locks, count on their own.
func (h *Claimed[Tx]) Token() int64 { return h.token }

// Until is when the claim ends, by the database's clock, as far as this value has heard: another
// process may have extended or released it.
func (h *Claimed[Tx]) Until() time.Time { return time.UnixMicro(h.until.Load()) }

// Do is [Mutex.Do] of the claim. It commits only if the claim is still this holder's: that and the
// end are compared behind the grant of the lock, and nobody takes what is locked. So a claim that
// runs out in the middle of work does no harm. One that was over before is [ErrClaimEnded], and
// work does not run.
//
// In the work of another Do it is part of that Do's transaction, in a savepoint. Several claims in
// one transaction: Do of one in the work of the other, in the same order everywhere.
func (h *Claimed[Tx]) Do(ctx context.Context, work func(ctx context.Context, tx Tx) error) error {
	const verb = "Claimed.Do"
	m := *h.claim.mutex
	if work == nil {
		return m.wrap(verb, errors.New("nil work"))
	}
	keep, err := h.keep(ctx)
	if err != nil {
		return m.wrap(verb, err)
	}
	locked := false
	m.attached = &attached{look: keep, judge: func(answer []string) error {
		locked = true
		_, err := h.judge(rowOf(answer, nil))
		return m.wrap(verb, err)
	}}
	err = m.do(ctx, verb, false, work)
	if !locked {
		err = goneIsEnded(err)
	}
	return err
}

// LockTx does in the caller's transaction what Do does: when it returns nil, the claim is this
// holder's until that transaction ends. It is [ErrClaimEnded] when the claim is over, and then the
// transaction is usable. Otherwise it is as [Mutex.LockTx].
func (h *Claimed[Tx]) LockTx(ctx context.Context, tx Tx) error {
	const verb = "Claimed.LockTx"
	m := h.claim.mutex
	ctx, trace := m.startTrace(ctx, verb, false)
	err := goneIsEnded(m.lockIn(ctx, verb, tx, false))
	if err == nil {
		var keep dialects.Query
		if keep, err = h.keep(ctx); err == nil {
			_, err = h.judge(rowOf(m.locker.driver.RunTx(ctx, tx, keep)))
		}
		err = m.wrap(verb, err)
	}
	trace.answer(err)
	return err
}

// keep reads whether the claim is held.
func (h *Claimed[Tx]) keep(ctx context.Context) (dialects.Query, error) {
	m, hash := h.claim.mutex, claimOf(h.Key())
	if err := m.ready(); err != nil {
		return dialects.Query{}, err
	}
	keep := func(sql dialects.ClaimSQL) string { return sql.Keep }
	return h.claim.query(ctx, m.locker.carriesOpen(ctx), keep, hash[:], h.by, h.token, h.secret)
}

// goneIsEnded is an error of a lock, where that of a row that is gone is [ErrClaimEnded].
func goneIsEnded(err error) error {
	if errors.Is(err, ErrNoRow) {
		err = fmt.Errorf("%w: it is gone: %v", ErrClaimEnded, err)
	}
	return err
}

// judge is the row of a statement, and an error unless that has done what it is for.
func (h *Claimed[Tx]) judge(row claimRow, err error) (claimRow, error) {
	switch {
	case err != nil || row.done > 0:
		return row, err
	case row.By != h.by || row.Token != h.token || row.secret != h.secret:
		return row, fmt.Errorf("%w: another has taken it since, or it is gone", ErrClaimEnded)
	case row.isReleased():
		return row, fmt.Errorf("%w: it was released", ErrClaimEnded)
	}
	return row, fmt.Errorf("%w: its time was over at %s, by the database's clock", ErrClaimEnded,
		row.Until.UTC().Format(time.RFC3339Nano))
}

// Extend moves the end to d from now, by the database's clock, and returns it. A claim that is over
// is [ErrClaimEnded], also when nobody has taken it since. It waits for a Do of the claim that is
// under way; in the work of that Do, call it with the work's ctx. d is at least a second, and at
// most 366 days.
func (h *Claimed[Tx]) Extend(ctx context.Context, d time.Duration) (until time.Time, err error) {
	const verb = "Claimed.Extend"
	if err := checkFor(d); err != nil {
		return until, h.claim.mutex.wrap(verb, err)
	}
	row, err := h.end(ctx, verb, d)
	if err != nil {
		return until, err
	}
	return row.Until, nil
}

// Release gives the claim back. It waits for a Do of the claim that is under way, with a ctx that
// has ended for 5 s at most. A claim that was released before is no error, until Sweep has deleted
// its row; one that was over, or another's, is [ErrClaimEnded]. Who waits here learns of it at
// once, in other processes, and in the work of a Do, within a second.
func (h *Claimed[Tx]) Release(ctx context.Context) error {
	if ctx.Err() != nil {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
	}
	row, err := h.end(ctx, "Claimed.Release", -time.Microsecond)
	if errors.Is(err, ErrClaimEnded) && row.isReleased() && row.By == h.by && row.Token == h.token &&
		row.secret == h.secret {
		return nil
	}
	return err
}

// end moves the end to d from now, or, with less than 0, releases the claim. In the work of a Do,
// the row is locked first, which may take longer than a statement there.
func (h *Claimed[Tx]) end(ctx context.Context, verb string, d time.Duration) (row claimRow, err error) {
	c, l, hash := h.claim, h.claim.mutex.locker, claimOf(h.Key())
	ask := func(ctx context.Context, inWork bool) error {
		row, err = h.judge(c.ask(ctx, inWork, func(sql dialects.ClaimSQL) string { return sql.End },
			d.Microseconds(), h.by, h.token, h.secret, hash[:], hash[:]))
		return err
	}
	ctx, trace := c.mutex.startTrace(ctx, verb, true)
	err = traced(trace, nil, func(func(context.Context, Tx) error) error {
		if l.carriesOpen(ctx) {
			return goneIsEnded(c.mutex.acquireAndPerform(ctx, verb, false, func(ctx context.Context, _ Tx) error {
				return c.mutex.wrap(verb, ask(ctx, true))
			}))
		}
		_, err := c.within(ctx, func(ctx context.Context) (claimRow, error) { return row, ask(ctx, false) })
		if err == nil {
			h.until.Store(row.Until.UnixMicro())
			l.lookout.Wake()
		}
		return c.mutex.wrap(verb, err)
	})
	return row, err
}

// claimColumn stands where locks of rows have the name of a column.
const claimColumn = "claim"

// heldClaims are those of all claims, or of these keys, that are held. An installation from before
// there were claims has none, and its users may read none.
func (l *Locker[Tx]) heldClaims(ctx context.Context, keys []string) (holdings []Holding, err error) {
	found, err := l.find(ctx, false)
	if err != nil {
		return nil, err
	}
	sql, named := found.Kinds.Claims, map[string]string{}
	queries := []dialects.Query{{SQL: sql.List, Table: sql.Table, Reads: true}}
	for i, key := range keys {
		hash := claimOf(key)
		named[hex.EncodeToString(hash[:])] = key
		read := dialects.Query{SQL: sql.Read, Args: []any{hash[:]}, Table: sql.Table, Reads: true}
		queries = append(queries[:i], read)
	}
	var lines []string
	for _, q := range queries {
		some, err := l.ask(ctx, q)
		switch {
		case errors.Is(err, ErrNotInstalled), errors.Is(err, dialects.ErrNotPermitted):
			return nil, nil
		case err != nil:
			return nil, err
		}
		lines = append(lines, some...)
	}
	for _, line := range lines {
		row, err := rowOf([]string{line}, nil)
		if err != nil || row.left <= 0 {
			continue
		}
		hash := hex.EncodeToString(row.hash)
		key := cmp.Or(named[hash], label.Known(dialects.Named{Hash: hash, Name: row.name}))
		holdings = append(holdings, Holding{
			Table: l.config.table, Column: claimColumn, Row: hash, Key: key,
			Holder: &Session{
				Key: key, By: row.By, Since: row.Since, For: row.Until.Add(-row.left).Sub(row.Since), Until: row.Until,
				token: row.Token, secret: &row.secret,
			},
		})
	}
	return holdings, nil
}

func (l *Locker[Tx]) breakClaim(ctx context.Context, h Holding) error {
	claim := claimOf(h.Key)
	if h.Row != hex.EncodeToString(claim[:]) {
		return errors.New("the table does not show the key of this claim: inspect it by its key, and break that")
	}
	secret := *cmp.Or(h.Holder.secret, new(int64)) // nil in a Holding that nobody has inspected
	held := Claimed[Tx]{l.Claim(h.Key), h.Holder.By, h.Holder.token, secret, new(atomic.Int64)}
	_, err := held.end(Apart(ctx), "Claim.Break", 0)
	switch {
	case errors.Is(err, ErrClaimEnded):
		return fmt.Errorf("%w: %q does not have it any more", ErrNotHeld, h.Holder.By)
	case err == nil:
		l.config.logger.WarnContext(ctx, "txlock: ended a claim", "lock", h.name(), "by", h.Holder.By)
	}
	return err
}
