package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

// writeTable writes a table in Markdown. Its first column has texts, and the others have figures.
func writeTable(w io.Writer, title string, head []string, rows [][]string) {
	if len(rows) == 0 {
		return
	}
	line := func(cells []string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }
	fmt.Fprintf(w, "\n%s\n\n", title)
	line(head)
	line(append([]string{"---"}, slices.Repeat([]string{"--:"}, len(head)-1)...))
	for _, row := range rows {
		line(row)
	}
}

// writeRatios writes the ratios of txlock to what is written by hand.
func (x *index) writeRatios(w io.Writer) {
	head, rows := x.ratioTable()
	writeTable(w, "As a multiple of what is written by hand:", append([]string{"txlock"}, head...), rows)
}

// writeCrowds writes the measurements of one process with many callers.
func (x *index) writeCrowds(w io.Writer) {
	var rows [][]string
	callers := 0
	for _, c := range largest(x.crowds()) {
		callers = c.Callers
		toOwn, busy := nothing, nothing
		if own := x.ownSessions(c.Contestant); own > 0 && x.group(c.Contestant) != contest.InProcess {
			toOwn = factor(c.hot / own)
		}
		if c.busy > 0 {
			busy = count(c.busy)
		}
		rows = append(rows, []string{
			c.Contestant, c.free(c.p50), c.free(c.p99), number(c.hot), toOwn, busy, count(c.open),
		})
	}
	writeTable(w, fmt.Sprintf("A free key beside %d callers of another:", callers), []string{
		"contestant", "free key p50", "p99", "hot key, locks/s", "to 64 sessions by hand", "busy sessions",
		"connections",
	}, rows)
	rows = nil
	for _, h := range x.HandOffs {
		rows = append(rows, []string{h.Contestant, number(results.Median(h.PerSecond).Center)})
	}
	writeTable(w, "Goroutines of one process that lock and unlock one key:", []string{"contestant", "locks/s"}, rows)
	for _, callers := range x.buyers() {
		x.writeSales(w, callersOf(callers), salesBy(callers, x.HotRows))
	}
	if all := x.farSales(); len(all) > 0 {
		x.writeSales(w, x.farBuyers(all[0]), all)
	}
}

// writeSales writes the sales of one article by those that who names.
func (x *index) writeSales(w io.Writer, who string, all []hotRow) {
	var rows [][]string
	for _, h := range all {
		rows = append(rows, []string{
			h.Contestant, number(h.Center), x.toHand(h, all), duration(h.p50), duration(h.p99),
		})
	}
	writeTable(w, "Sales of one article, "+who+":", []string{
		"contestant", "sales/s", "to the transaction by hand", "p50", "p99",
	}, rows)
}
