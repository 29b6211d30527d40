package serve

import (
	"fmt"
	"strings"
	"time"
)

// The size of a plot, in its own units.
const (
	plotWidth  = 270 // 3 for each step
	plotHeight = 40
)

// plot is a small picture of the last quarter of an hour, with the same in words.
type plot struct {
	Title string
	Words string
	Lines []string // points of polylines: a gap is where nobody looked
}

func plotsOfAll(points []point) []plot {
	return []plot{
		plotOf("Locks held", points, func(p point) float64 { return float64(p.held) }, number),
		plotOf("Waiting", points, func(p point) float64 { return float64(p.waiting) }, number),
		plotOf("Longest wait", points, func(p point) float64 { return float64(p.wait) }, seconds),
	}
}

func plotsOfOne(points []point) []plot {
	return []plot{
		plotOf("Held for", points, func(p point) float64 { return float64(p.hold) }, seconds),
		plotOf("Waiting", points, func(p point) float64 { return float64(p.waiting) }, number),
		plotOf("Longest wait", points, func(p point) float64 { return float64(p.wait) }, seconds),
	}
}

func number(value float64) string { return grouped(int(value)) }

func seconds(value float64) string { return lasted(time.Duration(value * float64(time.Second))) }

func plotOf(title string, points []point, value func(point) float64, say func(float64) string) plot {
	p, most, looked, last := plot{Title: title}, 0.0, 0, 0.0
	for _, at := range points {
		if at.seen {
			last = value(at)
			most = max(most, last)
			looked++
		}
	}
	if looked == 0 {
		p.Words = "nobody has looked yet"
		return p
	}
	p.Words = fmt.Sprintf("%s; at most %s", say(last), say(most))
	if looked < steps {
		p.Words += fmt.Sprintf(" in %s of looking", lasted(time.Duration(looked)*step))
	} else {
		p.Words += " in 15 min"
	}
	const margin = 2.0
	var line strings.Builder
	end := func() {
		if line.Len() > 0 {
			p.Lines = append(p.Lines, line.String())
			line.Reset()
		}
	}
	for i, at := range points {
		if !at.seen {
			end()
			continue
		}
		high := plotHeight - margin
		if most > 0 {
			high -= value(at) / most * (plotHeight - 2*margin)
		}
		// A step has a width, so that a single one shows.
		fmt.Fprintf(&line, "%d,%.1f %d,%.1f ", i*plotWidth/steps, high, (i+1)*plotWidth/steps, high)
	}
	end()
	return p
}
