// Bench measures locks side by side, on real servers of this machine:
//
//	bench [-full] [-only PATTERN] [-measure NAMES] [-out FILE]
//	bench report FILE
//	bench page FILE FOLDER [NOTE]
//
// The first form measures, and writes results and a report. The second writes the report of
// existing results again. The third writes benchmarks.md and its pictures into a folder, with a
// note on what has changed since.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/txlock/txlock/bench/contest"
	_ "github.com/txlock/txlock/bench/contestants"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/measure"
	"github.com/txlock/txlock/bench/report"
	"github.com/txlock/txlock/bench/results"
	"github.com/txlock/txlock/bench/testbed"
)

func main() {
	crew.WorkIfWorker()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		if ctx.Err() != nil {
			os.Exit(130)
		}
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	switch {
	case len(args) == 2 && args[0] == "report":
		found, err := results.Read(args[1])
		if err != nil {
			return err
		}
		return writeReport(args[1], found)
	case (len(args) == 3 || len(args) == 4) && args[0] == "page":
		found, err := results.Read(args[1])
		if err != nil {
			return err
		}
		return writePage(found, args[1], args[2], strings.Join(args[3:], ""))
	}
	o, err := parse(args)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	found, err := measureAll(ctx, o.plan, o.contestants, o.chosen)
	if found == nil || ctx.Err() != nil {
		return err
	}
	return errors.Join(err, found.Write(o.out), writeReport(o.out, found))
}

// writeReport writes the report beside the file of results, and prints its table.
func writeReport(path string, found *results.Run) error {
	r := report.New(*found)
	if err := r.Write(filepath.Dir(path), strings.TrimSuffix(filepath.Base(path), ".json")); err != nil {
		return err
	}
	fmt.Println(r.Glance())
	fmt.Fprintf(os.Stderr, "results: %s\nreport:  %s\n", path, strings.TrimSuffix(path, ".json")+".md")
	return nil
}

// writePage writes a page with links to the file of results, and to the report beside it.
func writePage(found *results.Run, path, folder, note string) error {
	from, err := filepath.Abs(folder)
	if err != nil {
		return err
	}
	to, err := filepath.Abs(path)
	if err != nil {
		return err
	}
	source, err := filepath.Rel(from, to)
	if err != nil {
		return err
	}
	return report.New(*found).Page(folder, strings.TrimSuffix(source, ".json"), note)
}

// options are what the command line asks for.
type options struct {
	plan        measure.Plan
	contestants []contest.Contestant
	chosen      []measurement
	out         string
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	full := flags.Bool("full", false, "measure for publishing: takes about 20 minutes")
	only := flags.String("only", ".", "measure only contestants whose names match this regular `expression`")
	some := flags.String("measure", strings.Join(names(), ","), "measure only these `names`")
	flags.StringVar(&o.out, "out", "", "`file` for the results, JSON; the report is beside it (default "+
		"results/DATE-MODE.json)")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("%q is not understood: see bench -h", flags.Args())
	}
	if o.contestants, err = matching(*only); err != nil {
		return o, err
	}
	if o.chosen, err = choose(*some); err != nil {
		return o, err
	}
	o.plan = measure.Short()
	if *full {
		o.plan = measure.Full()
	}
	if o.out == "" {
		o.out = fmt.Sprintf("results/%s-%s.json", time.Now().UTC().Format(time.DateOnly), o.plan.Mode)
	}
	return o, nil
}

// matching are the contestants whose names match an expression.
func matching(expression string) (contestants []contest.Contestant, err error) {
	pattern, err := regexp.Compile(expression)
	if err != nil {
		return nil, fmt.Errorf("-only: %w", err)
	}
	all := "there are:"
	for _, c := range contest.All() {
		all += "\n  " + c.Name
		if pattern.MatchString(c.Name) {
			contestants = append(contestants, c)
		}
	}
	if len(contestants) == 0 {
		return nil, fmt.Errorf("-only: no contestant matches %q; %s", expression, all)
	}
	return contestants, nil
}

// measurement is one that -measure can choose.
type measurement struct {
	name string
	do   func(*measure.Lab, context.Context) error
}

var measurements = []measurement{
	{"turns", (*measure.Lab).MeasureTurns},
	{"uncontended", (*measure.Lab).MeasureUncontended},
	{"growth", (*measure.Lab).MeasureGrowth},
	{"contended", (*measure.Lab).MeasureContended},
	{"faults", (*measure.Lab).MeasureFaults},
	{"network", (*measure.Lab).MeasureNetwork},
	{"crowds", (*measure.Lab).MeasureCrowds},
	{"hot-rows", (*measure.Lab).MeasureHotRows},
	{"footprint", (*measure.Lab).MeasureFootprint},
}

func names() (all []string) {
	for _, m := range measurements {
		all = append(all, m.name)
	}
	return all
}

func choose(list string) (chosen []measurement, err error) {
	for name := range strings.SplitSeq(list, ",") {
		at := slices.IndexFunc(measurements, func(m measurement) bool { return m.name == name })
		if at < 0 {
			return nil, fmt.Errorf("-measure: no measurement is called %q; there are %q", name, names())
		}
		chosen = append(chosen, measurements[at])
	}
	return chosen, nil
}

// measureAll starts the servers that the contestants need, measures, and stops the servers. With an
// error it also returns what was measured before.
func measureAll(ctx context.Context, plan measure.Plan, contestants []contest.Contestant, chosen []measurement,
) (found *results.Run, err error) {
	found = &results.Run{Started: time.Now().UTC(), Mode: plan.Mode}
	if found.Machine, err = testbed.DescribeMachine(); err != nil {
		return nil, err
	}
	wanted := serversOf(contestants)
	show := &progress{started: time.Now()}
	show.say("starting %v", wanted)
	bed := testbed.Start(ctx, wanted, testbed.Durable)
	defer func() { err = errors.Join(err, bed.Stop()) }()
	for _, server := range wanted {
		if err := bed.Missing(server); err != nil {
			show.say("%s is missing: %v", server, err)
		}
	}
	if found.Servers, err = bed.Describe(ctx); err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "txlock-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	show.say("preparing %d contestants", len(contestants))
	lab, err := measure.Setup(ctx, plan, bed, contestants, folder, found)
	if err != nil {
		return nil, err
	}
	defer lab.Close()
	lab.Tell = show.step
	for _, c := range contestants {
		found.Contestants = append(found.Contestants, results.Contestant{
			Name: c.Name, Group: string(c.Group), Server: string(c.Server), Waits: string(c.Waits), Remark: c.Remark,
			ByHand: c.ByHand,
		})
	}
	for _, m := range chosen {
		if err = m.do(lab, ctx); err != nil {
			err = fmt.Errorf("%s: %w", m.name, err)
			break
		}
	}
	found.Took = time.Since(found.Started)
	return found, err
}

// serversOf are the servers that contestants need, and PostgreSQL for the work under locks that are
// in no database.
func serversOf(contestants []contest.Contestant) (wanted []contest.Server) {
	for _, c := range contestants {
		for _, server := range []contest.Server{c.Server, contest.PostgreSQL} {
			if needed := server == c.Server || !c.Server.SQL(); needed && !slices.Contains(wanted, server) {
				wanted = append(wanted, server)
			}
		}
	}
	return wanted
}

// progress tells from time to time what is being measured.
type progress struct {
	started     time.Time
	measurement string
	said        time.Time
}

func (p *progress) say(format string, values ...any) {
	fmt.Fprintf(os.Stderr, "%6.1f s  %s\n", time.Since(p.started).Seconds(), fmt.Sprintf(format, values...))
}

// step is called before and after each step of a measurement, by one goroutine at a time.
func (p *progress) step(measurement string, done, total int) {
	const pace = 5 * time.Second
	if measurement != p.measurement || done == total || time.Since(p.said) > pace {
		p.measurement, p.said = measurement, time.Now()
		p.say("%s: %d of %d", measurement, done, total)
	}
}
