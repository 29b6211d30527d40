package main

import (
	"fmt"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// progress shows what is being measured: as a bar on a terminal, elsewhere as a line from time to
// time.
type progress struct {
	terminal    bool
	started     time.Time
	measurement string
	bar         *progressbar.ProgressBar
	said        time.Time
}

func newProgress() *progress {
	return &progress{terminal: term.IsTerminal(int(os.Stderr.Fd())), started: time.Now()}
}

func (p *progress) say(format string, values ...any) {
	fmt.Fprintf(os.Stderr, "%6.1f s  %s\n", time.Since(p.started).Seconds(), fmt.Sprintf(format, values...))
}

// step is called before and after each step of a measurement, by one goroutine at a time.
func (p *progress) step(measurement string, done, total int) {
	first := measurement != p.measurement
	if p.measurement = measurement; p.terminal {
		if first {
			p.end()
			p.bar = progressbar.NewOptions(total, progressbar.OptionSetWriter(os.Stderr),
				progressbar.OptionSetDescription(measurement),
				progressbar.OptionShowCount(), progressbar.OptionFullWidth(), progressbar.OptionSetPredictTime(true))
		}
		_ = p.bar.Set(done)
		return
	}
	const pace = 5 * time.Second
	if first || done == total || time.Since(p.said) > pace {
		p.said = time.Now()
		p.say("%s: %d of %d", measurement, done, total)
	}
}

// end leaves the last bar as it is.
func (p *progress) end() {
	if p.bar != nil {
		fmt.Fprintln(os.Stderr)
	}
}
