// Package holders puts together who holds what, and who waits for it, from what the server shows
// and what sessions say of themselves.
package holders

import (
	"cmp"
	"iter"
	"net"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// Row is a row, a semaphore or an election with those who hold it, share it or wait for it.
type Row struct {
	dialects.RowState
	// Key is what the holder named, else what the first other session named that says so. A
	// semaphore and an election have the name that the caller has named, else that in their table.
	Key    string
	Behind int // how many more callers wait in the processes of these sessions

	Holder                    *Party
	Readers, Permits, Waiters []Party
}

// Party is a session that holds a row or waits for it. Its Since is that of the grant where the
// session says when that was.
type Party struct {
	dialects.Party
	Key    string // what it named, when it says so
	Behind int    // how many callers of its process wait, when it last said so
}

// Of puts rows together. Names are what the caller asks for.
func Of(states []dialects.RowState, slots int, names []string) []Row {
	rows := make([]Row, len(states))
	for i, state := range states {
		rows[i] = rowOf(state, slots)
	}
	blankAmbiguous(rows)
	for i := range rows {
		rows[i].nameKey(names)
	}
	return rows
}

func rowOf(state dialects.RowState, slots int) Row {
	r := Row{RowState: state}
	parties := func(shown []dialects.Party, hold bool) (parties []Party) {
		for _, p := range shown {
			key, bracket := bracketOf(p.Shown, state, slots)
			party := Party{Party: p, Key: key}
			if bracket != nil {
				party.Behind = bracket.Behind
			}
			if hold {
				party.grantedBy(bracket)
			}
			parties = append(parties, party)
		}
		return parties
	}
	if state.Holder != nil {
		r.Holder = &parties([]dialects.Party{*state.Holder}, true)[0]
	}
	r.Readers, r.Permits = parties(state.Readers, true), parties(state.Permits, true)
	r.Waiters = parties(state.Waiters, false)
	r.addUp()
	return r
}

// all are the holders and the waiters.
func (r *Row) all() iter.Seq[*Party] {
	return func(yield func(*Party) bool) {
		if r.Holder != nil && !yield(r.Holder) {
			return
		}
		for _, some := range [][]Party{r.Readers, r.Permits, r.Waiters} {
			for i := range some {
				if !yield(&some[i]) {
					return
				}
			}
		}
	}
}

// addUp counts those who wait in processes. The sessions of one process tell of the same callers.
func (r *Row) addUp() {
	type process struct {
		host   string
		number int
	}
	most := map[process]int{}
	for p := range r.all() {
		host, _, err := net.SplitHostPort(p.Host)
		if err != nil {
			host = p.Host
		}
		of := process{host, p.Process}
		r.Behind += max(p.Behind-most[of], 0)
		most[of] = max(most[of], p.Behind)
	}
}

// blankAmbiguous blanks the beginning of a key that one session shows for several slots: nobody
// knows which of them it belongs to.
func blankAmbiguous(rows []Row) {
	type shown struct{ session, key string }
	count := map[shown]int{}
	for i := range rows {
		for p := range rows[i].all() {
			count[shown{p.Session, p.Key}]++
		}
	}
	for i := range rows {
		for p := range rows[i].all() {
			if strings.HasSuffix(p.Key, "…") && count[shown{p.Session, p.Key}] > 1 {
				p.Key = ""
			}
		}
	}
}

func (r *Row) nameKey(names []string) {
	if r.Named.Kind != dialects.KindRow {
		r.Key = label.Known(r.Named)
		for _, name := range names {
			if label.Hash(name) == r.Named.Hash {
				r.Key = name
			}
		}
		return
	}
	for p := range r.all() {
		r.Key = cmp.Or(r.Key, p.Key)
	}
}

// grantedBy moves Since from the begin of the transaction to the grant of the lock.
func (p *Party) grantedBy(bracket *dialects.Shown) {
	if bracket == nil || !bracket.Granted || p.Since.IsZero() {
		return
	}
	begun := p.Since
	if p.Since = bracket.At; p.Since.IsZero() {
		p.Since = begun.Add(bracket.After)
	}
	p.For = max(p.For-p.Since.Sub(begun), 0)
}

// bracketOf finds the bracket that names the row, and the key in it that hashes to the row's slot.
// The beginning of a key may belong to any slot: it counts when nothing else does. A key that is
// hidden is empty.
func bracketOf(brackets []dialects.Shown, row dialects.RowState, slots int) (key string, of *dialects.Shown) {
	for i := range brackets {
		bracket := &brackets[i]
		for j, item := range bracket.Items {
			cut := bracket.Cut && j == len(bracket.Items)-1
			switch {
			case row.Named.Kind == dialects.KindSemaphore:
				hash, name := row.Named.Hash, label.FromASCII(row.Named.Name)
				switch {
				case bracket.Permits == 0:
				case label.Hash(item) == hash, cut && name != "" && strings.HasPrefix(name, item):
					return cmp.Or(name, item), bracket
				case item == label.Hidden(hash):
					return "", bracket
				}
			case bracket.Permits > 0:
			case row.Column != "":
				if bracket.Table == row.Table && bracket.Column == row.Column && item == row.Value {
					return "", bracket
				}
			case bracket.Table != "" || item == "":
			case cut:
				if key, of = "", bracket; !strings.HasPrefix(item, label.HiddenPrefix) {
					key = item + "…"
				}
			case strconv.Itoa(dialects.SlotOf(item, slots)) == row.Value:
				return item, bracket
			case item == label.HiddenPrefix+row.Value:
				return "", bracket
			}
		}
	}
	return key, of
}
