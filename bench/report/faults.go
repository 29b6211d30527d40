package report

import (
	"fmt"
	"html/template"
	"slices"
	"strings"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// fast is the time within which the next contender must enter for a fault to count as unnoticed. A
// lease is longer.
const fast = time.Second

// matrix is a table of contestants × faults.
type matrix struct {
	Faults []string
	Rows   []matrixRow
}

// matrixRow is the row of a contestant.
type matrixRow struct {
	Name   string
	Color  template.CSS
	TxLock bool
	Cells  []outcome
}

// outcome is a cell. Verdict is also its CSS class, Main and More are its text, and Notes are
// explanations.
type outcome struct{ Verdict, Main, More, Notes string }

func (x *index) faultsSection() (section, error) {
	const id, title = "faults", "When something breaks"
	if len(x.Faults) == 0 {
		return unmeasured(id, title), nil
	}
	found := make(map[string]map[string]results.Fault)
	for _, f := range x.Faults {
		if found[f.Contestant] == nil {
			found[f.Contestant] = make(map[string]results.Fault)
		}
		found[f.Contestant][f.Fault] = f
	}
	m := &matrix{Faults: results.FaultNames}
	for _, name := range x.byGroup(found) {
		group := x.group(name)
		row := matrixRow{Name: name, Color: css(lookOf(group).color), TxLock: group == contest.TxLock}
		for _, fault := range m.Faults {
			row.Cells = append(row.Cells, judge(found[name][fault]))
		}
		m.Rows = append(m.Rows, row)
	}
	return section{ID: id, Title: title, Text: []string{
		"The holder is killed (kill -9). It is stopped (SIGSTOP) until another has the lock and has done its work, " +
			"and then goes on to " +
			"write. Its network to the lock goes silent. One who waits is killed. Each cell says how long it took " +
			"until the next one was " +
			"inside, and how many updates are not in the database although the database had confirmed them.",
	}, Blocks: []block{{Matrix: m}}}, nil
}

// byGroup sorts the names of the contestants that were found in the order of the report.
func (x *index) byGroup(found map[string]map[string]results.Fault) (names []string) {
	for _, group := range append(slices.Clone(contest.Groups), "") {
		for _, f := range x.Faults {
			known := slices.Contains(contest.Groups, x.group(f.Contestant))
			fits := x.group(f.Contestant) == group || group == "" && !known
			if fits && found[f.Contestant] != nil && !slices.Contains(names, f.Contestant) {
				names = append(names, f.Contestant)
			}
		}
	}
	return names
}

// judge summarises the trials of a fault.
func judge(f results.Fault) outcome {
	if len(f.Trials) == 0 {
		return outcome{Verdict: "none", Main: nothing}
	}
	var longest, limit time.Duration
	var notes []string
	lost, told, never := 0, 0, 0
	for _, t := range f.Trials {
		lost += max(0, t.Lost)
		longest, limit = max(longest, t.Regained), max(limit, t.Limit)
		if t.Regained < 0 {
			never++
		}
		if t.Told {
			told++
		}
		if t.Note != "" && !slices.Contains(notes, t.Note) {
			notes = append(notes, t.Note)
		}
	}
	o := outcome{
		Verdict: "good", Main: "after " + duration(longest), More: "nothing lost",
		Notes: strings.Join(notes, "; "),
	}
	switch {
	case longest == 0:
		o.Main = "at once"
	case longest >= fast:
		o.Verdict = "late"
	}
	if never > 0 {
		o.Verdict, o.Main = "stuck", fmt.Sprintf("not within %s", duration(limit))
		if never < len(f.Trials) {
			o.Main = fmt.Sprintf("%d of %d not within %s", never, len(f.Trials), duration(limit))
		}
	}
	if lost > 0 {
		o.Verdict, o.More = "bad", fmt.Sprintf("%d lost", lost)
	}
	if told > 0 {
		o.More += ", holder told"
	}
	return o
}

// losses is the number of updates that a contestant lost over all faults, and whether it took part.
func (x *index) losses(name string) (lost int, tookPart bool) {
	for _, f := range x.Faults {
		if f.Contestant != name {
			continue
		}
		for _, t := range f.Trials {
			lost += max(0, t.Lost)
			tookPart = true
		}
	}
	return lost, tookPart
}
