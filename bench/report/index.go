package report

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// index finds a contestant's figures in a run.
type index struct {
	results.Run
	contestants map[string]results.Contestant
	uncontended map[string]results.Uncontended
}

func newIndex(run results.Run) *index {
	x := &index{run, make(map[string]results.Contestant), make(map[string]results.Uncontended)}
	for _, c := range run.Contestants {
		x.contestants[c.Name] = c
	}
	for _, u := range run.Uncontended {
		x.uncontended[u.Contestant] = u
	}
	return x
}

func (x *index) group(name string) contest.Group { return contest.Group(x.contestants[name].Group) }

// native is the database's own lock to compare a contestant of txlock with. If there are two, it is
// the one with the same life.
func (x *index) native(of results.Contestant) (name string, found bool) {
	forTransactions := strings.HasPrefix(of.Name, "txlock Do") || strings.HasPrefix(of.Name, "txlock Rows")
	for _, c := range x.Contestants {
		if contest.Group(c.Group) != contest.Native || c.Server != of.Server {
			continue
		}
		if name == "" || strings.Contains(c.Name, "xact") == forTransactions {
			name = c.Name
		}
	}
	return name, name != ""
}

// setting is the setting of a contended run.
type setting struct {
	rejoin     results.Rejoin
	hold       time.Duration
	contenders int
}

// contended returns the contended runs under a setting, summarised over their rounds.
func (x *index) contended(s setting) (all []contended) {
	for _, c := range x.Contended {
		if (setting{c.Rejoin, c.Hold, c.Contenders}) == s && len(c.Rounds) > 0 {
			all = append(all, sumUp(c))
		}
	}
	return all
}

// settings are all measured settings with this way to rejoin, sorted by hold, then by contenders
// with the most first.
func (x *index) settings(rejoin results.Rejoin) (all []setting) {
	for _, c := range x.Contended {
		if s := (setting{c.Rejoin, c.Hold, c.Contenders}); c.Rejoin == rejoin && !slices.Contains(all, s) {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b setting) int {
		return cmp.Or(cmp.Compare(a.hold, b.hold), cmp.Compare(b.contenders, a.contenders))
	})
	return all
}

// main is the setting that the summary uses for a way to rejoin: the most contenders, with the
// shortest hold that is not 0.
func (x *index) main(rejoin results.Rejoin) (s setting, found bool) {
	for _, other := range x.settings(rejoin) {
		longer := s.hold == 0 && other.hold > 0
		if !found || longer || other.hold == s.hold && other.contenders > s.contenders {
			s, found = other, true
		}
	}
	return s, found
}

// present are the groups of the named contestants.
func (x *index) present(names []string) map[contest.Group]bool {
	groups := make(map[contest.Group]bool)
	for _, name := range names {
		groups[x.group(name)] = true
	}
	return groups
}
