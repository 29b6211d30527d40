// Package report turns the results of a run of the benchmark into Markdown.
package report

import (
	_ "embed"
	"fmt"
	"os"
	"strings"
	"text/template"
	"time"

	"github.com/txlock/txlock/bench/results"
)

//go:embed report.gotmpl
var markdown string

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

// Write writes all figures into a file.
func (r *Report) Write(path string) error {
	page, err := template.New("report").Parse(markdown)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	var b strings.Builder
	if err := page.Execute(&b, r); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return os.WriteFile(path, []byte(b.String()), 0o644)
}

// Date is the day of the run.
func (r *Report) Date() string { return r.Started.Format("2 January 2006") }

// Duration is how long the run took.
func (r *Report) Duration() string { return r.Took.Round(time.Second).String() }

// Trip is the round trip of the measurements over a network.
func (r *Report) Trip() string { return (2 * r.Network.Delay).String() }

// Contenders are the most that one setting had.
func (r *Report) Contenders() (most int) {
	for _, c := range r.Contended {
		most = max(most, c.Contenders)
	}
	return most
}

// Buyers are the most callers that sold one article.
func (r *Report) Buyers() (most int) {
	for _, h := range r.HotRows {
		most = max(most, h.Callers)
	}
	return most
}

// Lost is the number of updates that a contestant lost in all faults.
func (r *Report) Lost(contestant string) (lost int) {
	for _, f := range r.Faults {
		if f.Contestant == contestant {
			lost += lostIn(f)
		}
	}
	return lost
}
