// Package report turns the results of a run of the benchmark into Markdown and plots.
package report

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/results"
)

//go:embed *.gotmpl
var files embed.FS

// Report is the report of a run.
type Report struct {
	results.Run
	contestants map[string]results.Contestant
}

// New returns the report of a run.
func New(run results.Run) *Report {
	r := &Report{run, make(map[string]results.Contestant)}
	for _, c := range run.Contestants {
		r.contestants[c.Name] = c
	}
	return r
}

// text is what a template gets.
type text struct {
	*Report
	Source string // of the file with all figures, without its ending
	Note   string // on what has changed since the run
	Plots  []plotted
}

// Write writes all figures into folder/name.md, and the plots beside it.
func (r *Report) Write(folder, name string) error {
	plots, err := draw(folder, name, r.growth())
	if err != nil {
		return err
	}
	return fill(filepath.Join(folder, name+".md"), "report.gotmpl", text{Report: r, Plots: plots})
}

// Page writes benchmarks.md into a folder, and its plots beside it. The source, without its ending,
// is that of the files that Write and results.Run.Write have written, seen from there.
func (r *Report) Page(folder, source, note string) error {
	plots, err := draw(folder, "benchmarks", r.growth())
	if err != nil {
		return err
	}
	if pools := r.pools(); len(pools.lines) > 0 {
		if _, err := draw(folder, "", []chart{pools}); err != nil {
			return err
		}
	}
	return fill(filepath.Join(folder, "benchmarks.md"), "page.gotmpl", text{r, source, note, plots})
}

func fill(path, name string, with text) error {
	templates, err := template.ParseFS(files, "*.gotmpl")
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var b strings.Builder
	if err := templates.ExecuteTemplate(&b, name, with); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// Date is the day of the run.
func (r *Report) Date() string { return r.Started.Format("2 January 2006") }

// Duration is how long the run took.
func (r *Report) Duration() string { return r.Took.Round(time.Second).String() }

// Versions are those of the servers, without what a packager has added.
func (r *Report) Versions() string {
	var all []string
	for _, s := range r.Servers {
		version, _, _ := strings.Cut(s.Version, "-")
		all = append(all, strings.TrimSpace(s.Name+" "+version))
	}
	return strings.Join(all, ", ")
}

// Trip is the round trip of the measurements over a network.
func (r *Report) Trip() string { return tickTime(float64(2 * r.Network.Delay)) }

// Contenders are the most that a setting had with other locks, too.
func (r *Report) Contenders() int {
	return largest(r.Contended, func(c results.Contended) int {
		if r.contestants[c.Contestant].Group == string(contest.TxLock) {
			return 0
		}
		return c.Contenders
	})
}

// Callers are the most of a crowd.
func (r *Report) Callers() int {
	return largest(r.Crowds, func(c results.Crowd) int { return c.Callers })
}

// Buyers are the most callers that sold one article.
func (r *Report) Buyers() int {
	return largest(r.HotRows, func(h results.HotRow) int { return h.Callers })
}

func largest[Result any](all []Result, figure func(Result) int) (largest int) {
	for _, one := range all {
		largest = max(largest, figure(one))
	}
	return largest
}

// Ratios are the times of a use of txlock in turns, as multiples of the same by hand, on clients
// whose names match an expression.
func (r *Report) Ratios(use, client string) string {
	var all []float64
	of := regexp.MustCompile("^txlock " + use + ",.*" + client)
	for _, t := range r.Turns {
		if of.MatchString(t.Contestant) {
			all = append(all, results.Ratio(t.Rounds, t.WithRounds).Center)
		}
	}
	return spread(all, twoDigits)
}

// FreeKey is the wait for a free key beside the largest crowd, of contestants with this beginning
// of their names, with the queue in the process or without.
func (r *Report) FreeKey(beginning string, queue bool) string {
	var all []float64
	for _, c := range r.Crowds {
		if c.Callers == r.Callers() && strings.HasPrefix(c.Contestant, beginning) &&
			strings.HasSuffix(c.Contestant, ", no queue") != queue {
			all = append(all, float64(sumUpCrowd(c).p50))
		}
	}
	return spread(all, nanoseconds)
}

// Needed is what callers of contestants with this beginning of their names need while they do what:
// hold a key each, or wait for one key.
func (r *Report) Needed(beginning, what string, oneKey bool) string {
	var memory, processor []float64
	callers := 0
	for _, f := range r.Footprints {
		if strings.HasPrefix(f.Contestant, beginning) && f.OneKey == oneKey {
			callers, memory = f.Callers, append(memory, f.Memory)
			processor = append(processor, f.Processor)
		}
	}
	return fmt.Sprintf("%s %s: %s each, %s", count(callers), what, spread(memory, kilobytes), spread(processor, share))
}

// Lost is the number of updates that contestants with this beginning of their names lost in all
// faults.
func (r *Report) Lost(beginning string) int {
	return r.lost(func(name string) bool { return strings.HasPrefix(name, beginning) })
}

func (r *Report) lost(by func(contestant string) bool) (lost int) {
	for _, f := range r.Faults {
		if by(f.Contestant) {
			lost += lostIn(f)
		}
	}
	return lost
}

// Times says how many times as much as the transaction by hand a use sells, on contestants whose
// names match an expression.
func (r *Report) Times(use string, far bool) string {
	all := r.HotRows
	if far {
		all = r.Network.HotRows
	}
	var factors []float64
	of := regexp.MustCompile("^txlock " + use)
	for _, h := range all {
		if of.MatchString(h.Contestant) && (far || h.Callers == r.Buyers()) {
			factors = append(factors, r.toHand(h, all))
		}
	}
	return spread(factors, digits)
}
