package serve

import (
	"encoding/hex"
	"hash/fnv"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/holdings"
)

const (
	mostLocks   = 100 // in the list
	mostShown   = 5   // holders, and waiters, of a lock in the list
	mostQueued  = 500 // of a lock on its own page
	longestName = 120 // characters in the list
)

// lockView is a lock as a page shows it.
type lockView struct {
	ID      string // of its element: the same from one picture to the next
	URL     string // of its own page
	Name    string
	Long    string // the name in full
	Place   string // the slot, when the name is a key
	Kind    string
	State   string
	Holders []sessionView
	Waiters []sessionView
	Waiting string

	MoreHolders, More int // holders, and waiters, that are not shown
}

// sessionView is a session as a page shows it.
type sessionView struct {
	Place       int // in the queue, from 1; 0 for a holder
	State       string
	ID          string
	By, Until   string // of a claim, which has no session
	Prepared    string // the name of a prepared transaction, which has none either
	Key         string // if it named another than the lock's
	Application string
	Client      string
	User        string
	Database    string
	Statement   string
	Idle        bool
	For         string
	Since       string
	Break       string // the address at which it can be ended, if that is allowed
}

func viewOf(h txlock.Holding, most int) lockView {
	id := idOf(h)
	v := lockView{
		ID: id.element(), URL: "lock?" + id.query().Encode(), Long: clean(nameOf(h)), Kind: kindOf(h),
	}
	if len(h.Waiters) > 0 {
		v.Waiting = strconv.Itoa(len(h.Waiters))
	}
	v.Name = cut(v.Long, longestName)
	if h.Key != "" && h.Column == "" {
		v.Place = clean("slot " + h.Row + " of " + h.Table)
	}
	holders := holdings.Holders(h)
	for _, holder := range holders[:min(len(holders), most)] {
		v.Holders = append(v.Holders, sessionOf(holder, h, 0))
	}
	v.MoreHolders = len(holders) - len(v.Holders)
	switch len(holders) {
	case 0:
		v.State = "passes on"
	case 1:
		v.State = holdings.State(h, holders[0])
	default:
		v.State = together(h, len(holders))
	}
	for i, waiter := range h.Waiters[:min(len(h.Waiters), most)] {
		v.Waiters = append(v.Waiters, sessionOf(waiter, h, i+1))
	}
	v.More = len(h.Waiters) - len(v.Waiters)
	return v
}

func sessionOf(s txlock.Session, of txlock.Holding, place int) sessionView {
	v := sessionView{
		Place: place, ID: clean(s.ID), Application: clean(s.Application), Client: clean(holdings.Client(s)),
		User: clean(s.User), Database: clean(s.Database), Statement: clean(s.Statement), Idle: s.Idle,
	}
	if v.State = holdings.State(of, s); place > 0 {
		v.State = holdings.Waits(s)
	}
	v.Prepared = clean(s.Prepared)
	if s.By != "" {
		v.By, v.Until = clean(s.By), clock(s.Until)
	}
	if s.Key != of.Key {
		v.Key = cut(clean(s.Key), longestName)
	}
	if !s.Since.IsZero() {
		v.Since = clock(s.Since)
	}
	if !s.Since.IsZero() || s.For > 0 {
		v.For = lasted(s.For)
	}
	return v
}

// lockID is what identifies a row: see [txlock.Holding].
type lockID struct{ table, column, row string }

func idOf(h txlock.Holding) lockID { return lockID{h.Table, h.Column, h.Row} }

func (id lockID) query() url.Values {
	q := url.Values{"table": {id.table}, "row": {id.row}}
	if id.column != "" {
		q.Set("column", id.column)
	}
	return q
}

// element is an id for the document. Its hash is not secret and may collide: then two rows of a
// table look alike to the script, which only costs a redraw.
func (id lockID) element() string {
	sum := fnv.New64a()
	for _, part := range []string{id.table, id.column, id.row} {
		sum.Write([]byte(part))
		sum.Write([]byte{0})
	}
	return "l" + hex.EncodeToString(sum.Sum(nil))
}

// list is the view of all locks.
type list struct {
	At      string
	Search  string
	Found   int
	All     int
	Waiters int // sessions, of all locks
	Locks   []lockView
	More    int // that were found, and are not shown
}

// AllWords says how many locks there are.
func (l list) AllWords() string { return counted(l.All, "lock", "locks") }

// FoundWords says how many locks were found.
func (l list) FoundWords() string { return counted(l.Found, "lock", "locks") }

// WaiterWords says how many sessions wait.
func (l list) WaiterWords() string { return counted(l.Waiters, "session waits", "sessions wait") }

// Searched is what was searched, as far as it has room.
func (l list) Searched() string { return cut(clean(l.Search), longestName) }

// listOf has the most urgent locks.
func listOf(s state, search string) list {
	l := list{At: s.when(), Search: search, All: len(s.holdings)}
	found := make([]txlock.Holding, 0, len(s.holdings))
	for _, h := range s.holdings {
		l.Waiters += len(h.Waiters)
		if search == "" || matches(h, search) {
			found = append(found, h)
		}
	}
	slices.SortStableFunc(found, holdings.ByUrgency)
	l.Found = len(found)
	for _, h := range found[:min(l.Found, mostLocks)] {
		l.Locks = append(l.Locks, viewOf(h, mostShown))
	}
	l.More = l.Found - len(l.Locks)
	return l
}

// matches tells whether a lock goes by what somebody searches: a part of a key, or of the name of
// the row. Where a server shows the beginning of a key only, a longer search finds that too.
func matches(h txlock.Holding, search string) bool {
	search = strings.ToLower(search)
	fits := func(key string) bool {
		key = strings.ToLower(key)
		return strings.Contains(key, search) || holdings.Shows(key, search)
	}
	session := func(s txlock.Session) bool { return fits(s.Key) }
	return fits(nameOf(h)) || h.Column == "" && fits("slot "+h.Row) ||
		slices.ContainsFunc(append(holdings.Holders(h), h.Waiters...), session)
}

// lockPage is the page of one lock.
type lockPage struct {
	At   string
	Name string
	Lock *lockView // nil when nobody holds or awaits it
}

func (p *Page) lockPage(s state, id lockID) lockPage {
	l := lockPage{At: s.when()}
	if h, ok := s.find(id); ok {
		v := viewOf(h, mostQueued)
		l.Lock, l.Name = &v, v.Long
		for i, holder := range holdings.Holders(h)[:len(v.Holders)] {
			if p.breaking && holder.ID != "" && s.trouble() == "" {
				q := id.query()
				q.Set("session", holder.ID)
				v.Holders[i].Break = "break?" + q.Encode()
			}
		}
		return l
	}
	l.Name = clean(nameOf(txlock.Holding{Table: id.table, Column: id.column, Row: id.row}))
	return l
}

func (s state) find(id lockID) (txlock.Holding, bool) {
	for _, h := range s.holdings {
		if idOf(h) == id {
			return h, true
		}
	}
	return txlock.Holding{}, false
}
