// Package exposition writes gauges in the text format of Prometheus, whose client library, with six
// other modules, would weigh on all who mount the page.
package exposition

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

// Gauge is a metric that can go up and down.
type Gauge struct {
	Name, Help string
	Series     []Series // each with the same labels, and other values
}

// Series is a value of a gauge.
type Series struct {
	Labels []string // names and values, in turns
	Value  float64
}

// Add adds a series.
func (g *Gauge) Add(value float64, labels ...string) {
	g.Series = append(g.Series, Series{labels, value})
}

// Write writes the gauges that have series.
func Write(w io.Writer, gauges ...Gauge) error {
	b := bufio.NewWriter(w)
	for _, g := range gauges {
		if len(g.Series) == 0 {
			continue
		}
		_, _ = b.WriteString("# HELP " + g.Name + " " + g.Help + "\n# TYPE " + g.Name + " gauge\n")
		for _, s := range g.Series {
			_, _ = b.WriteString(g.Name)
			for i := 0; i+1 < len(s.Labels); i += 2 {
				_, _ = b.WriteString(map[bool]string{true: "{", false: ","}[i == 0] + s.Labels[i] + `="` +
					escaped.Replace(strings.ToValidUTF8(s.Labels[i+1], "\uFFFD")) + `"`)
			}
			if len(s.Labels) > 0 {
				_ = b.WriteByte('}')
			}
			_, _ = b.WriteString(" " + strconv.FormatFloat(s.Value, 'g', -1, 64) + "\n")
		}
	}
	return b.Flush() // which has the first error
}

var escaped = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)
