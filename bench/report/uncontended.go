package report

import (
	"fmt"
	"image/color"
	"slices"
	"time"

	"gonum.org/v1/plot"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

func (x *index) uncontendedSection() (s section, err error) {
	const id, title = "uncontended", "Nobody else wants it"
	if len(x.Uncontended) == 0 {
		return unmeasured(id, title), nil
	}
	s = section{ID: id, Title: title, Text: []string{
		"One client locks a key and unlocks it, over and over, with nobody else about. This is what a lock costs " +
			"when it is free.",
	}}
	var names []string
	chart := rowChart{
		title: "Lock and unlock, uncontended", axis: "one cycle, logarithmic",
		caption: "The mark is the median of all cycles (p50), the line goes to the 99th percentile (p99). Left is " +
			"better.",
		scale: func(axis *plot.Axis, values []float64) { logarithmic(axis, values, tickTime) },
	}
	for _, u := range x.Uncontended {
		if u.P50 > 0 {
			names = append(names, u.Contestant)
			chart.rows = append(chart.rows, x.times(u.Contestant, u.P50, u.P99))
		}
	}
	slices.SortFunc(chart.rows, ascending)
	keys, err := legend(x.present(names))
	if err != nil {
		return s, err
	}
	all, err := chart.figure()
	if err != nil {
		return s, err
	}
	s.Blocks = append(s.Blocks, block{Legend: keys, Figures: []figure{all}})
	compared, err := x.ratioBlock()
	if err != nil {
		return s, err
	}
	s.Blocks = append(s.Blocks, compared, x.ratioTableBlock(), block{
		Table: x.uncontendedTable(chart.rows), Folded: "All figures, with round trips and allocations",
	})
	return s, nil
}

// times is a contestant's row in a chart of times: a mark at the median, and a whisker to the 99th
// percentile.
func (x *index) times(name string, p50, p99 time.Duration) row {
	median := float64(p50)
	return row{
		name: name, group: x.group(name), value: median, low: median, high: max(median, float64(p99)),
		note: duration(p50),
	}
}

// ratioBlock shows txlock beside its floor and beside the databases' own locks.
func (x *index) ratioBlock() (b block, err error) {
	for _, part := range []struct {
		title, caption string
		all            []comparison
	}{
		{
			"txlock, as a multiple of the same promise by hand",
			"By hand: begin, the queue lock on PostgreSQL, the row, and the end, in as few round trips as the client " +
				"library can; for database/sql and mysql.New as its users write it. No check and no lease.",
			x.toFloor(),
		},
		{
			"txlock, as a multiple of the bare row",
			"The row alone: without the queue lock newcomers overtake on PostgreSQL, and without a savepoint a Do on " +
				"MySQL and MariaDB commits although its lock is lost. Elsewhere the promise needs no more than " +
				"the row.",
			x.toBare(),
		},
		{
			"txlock, as a multiple of the database's own lock",
			"Beside GET_LOCK and pg_advisory_lock, or pg_advisory_xact_lock if the lock lives in the transaction of " +
				"the work. " +
				"Those go through pgx and go-sql-driver/mysql without a detour, also where txlock goes through " +
				"database/sql.", x.toNative(),
		},
	} {
		if len(part.all) == 0 {
			continue
		}
		f, err := x.ratios(part.title, part.caption, part.all)
		if err != nil {
			return b, err
		}
		b.Figures = append(b.Figures, f)
	}
	if len(b.Figures) == 0 {
		return b, nil
	}
	b.Heading = "What the library adds"
	b.Text = "Ratios of rounds that were measured side by side, where possible call by call in turns: the mark is " +
		"their median, the line its confidence interval."
	return b, nil
}

func (x *index) ratios(title, caption string, all []comparison) (figure, error) {
	chart := rowChart{
		title: title, axis: "ratio of the times; left is better", caption: caption,
		scale: func(axis *plot.Axis, values []float64) {
			low, high := slices.Min(values), slices.Max(values)
			step := stepFor((high - low) * 1.1)
			linear(axis, max(0, low-step/2), high+step/2, step,
				func(x float64) string { return fmt.Sprintf("%.2f", x) })
		},
		aside:      true,
		references: []reference{{1, "1.0", right}, {1.1, "1.10", color.RGBA{180, 110, 0, 255}}},
	}
	for _, c := range all {
		chart.rows = append(chart.rows, row{
			name: c.contestant, group: contest.TxLock, value: c.Center, low: c.Lo, high: c.Hi, note: ratio(c.Interval),
			short: fmt.Sprintf("%.2f ×", c.Center),
		})
	}
	return chart.figure()
}

func (x *index) uncontendedTable(rows []row) *table {
	t := &table{Head: append(figures("p50", "p99", "locks/s", "round trips", "allocations", "to its floor"),
		cell{Text: "how it waits", Long: true}, cell{Text: "remark", Long: true})}
	floors := make(map[string]results.Interval)
	for _, c := range x.toFloor() {
		floors[c.contestant] = c.Interval
	}
	for _, row := range rows {
		u, c := x.uncontended[row.name], x.contestants[row.name]
		toFloor := nothing
		if i, found := floors[row.name]; found {
			toFloor = factor(i.Center)
		}
		cells := figures(duration(u.P50), duration(u.P99), number(perSecond(u.Mean)), number(u.RoundTrips),
			number(u.Allocs),
			toFloor)
		cells = append(cells, cell{Text: c.Waits, Long: true}, cell{Text: c.Remark, Long: true})
		t.Rows = append(t.Rows, x.row(row.name, cells...))
	}
	return t
}

// perSecond is the number of locks that a single client gets in a second.
func perSecond(mean time.Duration) float64 {
	if mean <= 0 {
		return 0
	}
	return 1 / mean.Seconds()
}
