// Package report turns the results of a run of the benchmark into a page and a short table.
package report

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"

	"github.com/txlock/txlock/bench/results"
)

//go:embed page
var files embed.FS

// page is the data of the template.
type page struct {
	results.Run
	Style    template.CSS
	Date     string
	Duration string
	Machine  []results.Setting
	Summary  string
	Findings []finding
	Sections []section
}

// HTML writes the report as one self-contained page, without network access or scripts.
func HTML(w io.Writer, run results.Run) error {
	templates, err := template.New("").Funcs(template.FuncMap{"join": join}).ParseFS(files, "page/*.gohtml")
	if err != nil {
		return fmt.Errorf("report: the template: %w", err)
	}
	style, err := files.ReadFile("page/page.css")
	if err != nil {
		return fmt.Errorf("report: the style sheet: %w", err)
	}
	x := newIndex(run)
	p := page{
		// nolint:gosec // our own file
		Run: run, Style: template.CSS(style), Date: date(run.Started), Machine: machine(run.Machine),
		Duration: run.Took.Round(time.Second).String(), Summary: x.summary(), Findings: x.findings(),
	}
	for _, part := range []func() (section, error){
		x.uncontendedSection, x.networkSection, x.contendedSection, x.fairnessSection, x.crowdsSection,
		x.handOffsSection, x.hotRowsSection, x.manyKeysSection, x.ordersSection, x.faultsSection,
	} {
		s, err := part()
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		p.Sections = append(p.Sections, s)
	}
	if err := templates.ExecuteTemplate(w, "page.gohtml", p); err != nil {
		return fmt.Errorf("report: write the page: %w", err)
	}
	return nil
}

func date(t time.Time) string {
	if t.IsZero() {
		return "date unknown"
	}
	return t.Format("2 January 2006, 15:04 MST")
}

// machine lists what is known of the machine.
func machine(m results.Machine) (facts []results.Setting) {
	add := func(name, value string, known bool) {
		if known {
			facts = append(facts, results.Setting{Name: name, Value: value})
		}
	}
	add("processor", fmt.Sprintf("%s, %d cores", m.CPU, m.Cores), m.CPU != "")
	add("memory", fmt.Sprintf("%.1f GiB", m.MemoryGiB), m.MemoryGiB > 0)
	add("system", m.Kernel, m.Kernel != "")
	add("Go", strings.TrimPrefix(m.Go, "go"), m.Go != "")
	add("load before", fmt.Sprintf("%.2f", m.LoadBefore), m.CPU != "")
	add("flush of 4 KiB to disk", duration(m.Flush), m.Flush > 0)
	return facts
}

// join writes the settings in one line.
func join(settings []results.Setting) string {
	var parts []string
	for _, s := range settings {
		parts = append(parts, s.Name+" = "+s.Value)
	}
	return strings.Join(parts, ", ")
}
