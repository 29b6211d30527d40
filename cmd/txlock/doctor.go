package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	"github.com/txlock/txlock/cmd/txlock/internal/dsn"
	"github.com/txlock/txlock/cmd/txlock/internal/terminal"
)

// The exit codes of doctor.
const (
	exitWarnings = 1
	exitFailures = 2
)

const doctorHelp = `Examines the server as the role of the URL sees it: does it really lock, is the lock table intact,
and what there would cut a lock or a wait. Each finding says what was found, why it matters to a
lock, and what repairs it; the worst come last. It changes nothing.

In JSON, "fix_kind" says what a "fix" is: "sql", statements that an administrator can run as they
are, all at once, in the database of the lock table; "shell", a command; "config", lines of a
file, below a comment that says of which; "advice", for a person to read first.

Exit codes: 0 locks are safe here, 1 with --strict there are warnings, 2 locks do not work or are
not safe, 69 the server cannot be reached.`

const doctorExample = `  txlock doctor
  txlock doctor --strict --quiet     # in CI
  txlock doctor --json | jq -r '.findings[] | select(.fix_kind == "sql").fix'`

func newDoctor(o *options) *cobra.Command {
	var asJSON, strict, quiet bool
	c := newCommand("doctor [flags]", "Check the server, and say what to do", doctorHelp, doctorExample,
		func(c *cobra.Command, _ []string) error {
			findings, err := o.examine(c.Context())
			if err != nil {
				return err
			}
			out, worst := c.OutOrStdout(), doctor.Worst(findings)
			if asJSON {
				err = writeJSON(out, map[string]any{
					"server": o.server.Address, "worst": worst, "findings": findings,
				})
			} else {
				err = writeFindings(out, findings, quiet, terminal.StyleOf(os.Stdout))
			}
			switch {
			case err != nil:
				return o.failed(c.Context(), "write", err)
			case worst == doctor.Failure:
				return &ending{code: exitFailures, own: true}
			case worst == doctor.Warning && strict:
				return &ending{code: exitWarnings, own: true}
			}
			return nil
		})
	c.Args = noArguments
	c.Flags().BoolVar(&asJSON, "json", false, "as JSON")
	c.Flags().BoolVar(&strict, "strict", false, "exit with 1 when there are warnings")
	c.Flags().BoolVarP(&quiet, "quiet", "q", false, "show warnings and failures only")
	return c
}

func (o *options) examine(ctx context.Context) ([]doctor.Finding, error) {
	if err := o.findTable(); err != nil {
		return nil, err
	}
	examine := doctor.MySQL
	if o.server.System == dsn.Postgres {
		examine = doctor.Postgres
	}
	var findings []doctor.Finding
	err := o.ask(ctx, "examine "+o.server.Address, workTimeout, func(ctx context.Context) (err error) {
		findings, err = examine(ctx, o.server.Driver, o.table)
		return err
	})
	return findings, err
}

// marks are the words for severities. Words can be told apart without colours.
var marks = map[doctor.Severity]struct{ word, way string }{
	doctor.OK:      {"ok", terminal.Green},
	doctor.Note:    {"note", terminal.Cyan},
	doctor.Warning: {"warning", terminal.Yellow},
	doctor.Failure: {"FAILURE", terminal.Red},
}

// writeFindings writes the worst finding last, next to the prompt.
func writeFindings(out io.Writer, findings []doctor.Finding, quiet bool, style terminal.Style) error {
	var b strings.Builder
	count := make(map[doctor.Severity]int)
	width := terminal.Width(os.Stdout)
	for _, severity := range doctor.Severities {
		for _, f := range findings {
			if f.Severity != severity {
				continue
			}
			count[severity]++
			if !quiet || severity == doctor.Warning || severity == doctor.Failure {
				writeFinding(&b, f, width, style)
			}
		}
	}
	fmt.Fprintf(&b, "%d ok, %d to note, %s, %s\n", count[doctor.OK], count[doctor.Note],
		several(count[doctor.Warning], "warning"), several(count[doctor.Failure], "failure"))
	_, err := io.WriteString(out, b.String())
	return err
}

func several(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}

func writeFinding(b *strings.Builder, f doctor.Finding, width int, style terminal.Style) {
	mark := marks[f.Severity]
	found := terminal.Wrap(f.Check+": "+terminal.Clean(f.Found), width, len(margin))
	fmt.Fprintf(b, "%s %s%s\n", style.In(mark.way, fmt.Sprintf("%-*s", len(margin)-1, mark.word)),
		style.In(terminal.Bold, f.Check), strings.TrimPrefix(strings.Join(found, "\n"+margin), f.Check))
	if f.Severity == doctor.OK {
		return
	}
	wrapped := func(text string) []string {
		return terminal.Wrap(terminal.Clean(text), width, len(margin)+len("why  "))
	}
	indented(b, "why", wrapped(f.Why))
	fix := strings.Split(f.Fix.Text, "\n") // lines to paste into a client
	if f.Fix.Kind == doctor.Advice && len(fix) == 1 {
		fix = wrapped(f.Fix.Text)
	}
	indented(b, "fix", fix)
}

// margin is the space to the left of a finding's text, below its severity.
const margin = "         "

func indented(b *strings.Builder, name string, lines []string) {
	for i, line := range lines {
		if i > 0 {
			name = ""
		}
		if line = strings.TrimRight(cleanLine(line), " "); line != "" {
			fmt.Fprintf(b, "%s%-4s %s\n", margin, name, line)
		}
	}
}

// cleanLine is terminal.Clean, but keeps the spaces.
func cleanLine(line string) string {
	words := strings.Split(line, " ")
	for i, word := range words {
		words[i] = terminal.Clean(word)
	}
	return strings.Join(words, " ")
}
