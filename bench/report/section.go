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

// block is a part of a section. Empty parts are not shown.
type block struct {
	Heading, Text string
	Legend        []key
	Figures       []figure
	Beside        bool // the figures are small enough for two in a row
	Table         *table
	Matrix        *matrix
	Folded        string // the text to click on to unfold the block; empty: it is not folded
	Open          bool   // a folded block that is open at first
}

// table has a row for each contestant.
type table struct {
	Head []cell // without the heading of the names
	Rows []tableRow
}

// tableRow is the row of a contestant.
type tableRow struct {
	Name   string
	Color  template.CSS
	TxLock bool
	Cells  []cell
}

// cell is a text, and whether it tells of something bad.
type cell struct {
	Text  string
	Alarm bool
	Long  bool // prose, which may wrap
}

// row makes the row of a contestant.
func (x *index) row(name string, cells ...cell) tableRow {
	group := x.group(name)
	return tableRow{name, css(lookOf(group).color), group == contest.TxLock, cells}
}

// figures are cells with plain figures.
func figures(texts ...string) (cells []cell) {
	for _, text := range texts {
		cells = append(cells, cell{Text: text})
	}
	return cells
}

// unmeasured is the section of a measurement that the run left out.
func unmeasured(id, title string) section {
	return section{ID: id, Title: title, Text: []string{"Not measured in this run."}}
}
