package report

import (
	"html/template"

	"github.com/txlock/txlock/bench/contest"
)

// section is a chapter of the page.
type section struct {
	ID, Title string
	Text      []string
	Blocks    []block
}

// block is a part of a section: what is empty is not shown.
type block struct {
	Heading, Text string
	Legend        []key
	Figures       []figure
	Beside        bool // the figures are so small that two go beside each other
	Table         *table
	Matrix        *matrix
	Folded        string // what to click at to see the block; empty: it is not hidden
	Open          bool   // it is folded, but one sees it at first
}

// table is a table with a row for each contestant.
type table struct {
	Head []cell // without that of the names
	Rows []tableRow
}

// tableRow is the row of a contestant.
type tableRow struct {
	Name   string
	Color  template.CSS
	TxLock bool
	Cells  []cell
}

// cell is a text, and whether it is something bad.
type cell struct {
	Text  string
	Alarm bool
	Long  bool // prose: it may be broken into lines
}

// row makes the row of a contestant.
func (x *index) row(name string, cells ...cell) tableRow {
	group := x.group(name)
	return tableRow{name, css(lookOf(group).color), group == contest.TxLock, cells}
}

// figures are cells of mere figures.
func figures(texts ...string) (cells []cell) {
	for _, text := range texts {
		cells = append(cells, cell{Text: text})
	}
	return cells
}

// unmeasured is the section of a measurement that the run did without.
func unmeasured(id, title string) section {
	return section{ID: id, Title: title, Text: []string{"Not measured in this run."}}
}
