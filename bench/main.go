// Bench measures the locks that people use today, side by side, on real servers of this machine:
//
//	bench [-full] [-only PATTERN] [-measure NAMES] [-out FILE | -into FILE] [-seed N]
//	bench report FILE
//	bench pools FILE PICTURE
//
// The first form measures, and writes results and a report. The second writes the report of
// existing results again. The third draws the picture of docs/pools.md from them.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/txlock/txlock/bench/contest"
	_ "github.com/txlock/txlock/bench/contestants"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/measure"
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
	if len(args) > 1 && (args[0] == "report" || args[0] == "pools") {
		return draw(args[0], args[1:])
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
	if o.into != "" && err == nil {
		earlier, err := results.Read(o.into)
		if err != nil {
			return err
		}
		for _, m := range o.chosen {
			earlier.Replace(m.name, found)
		}
		found, o.out = earlier, o.into
	}
	return errors.Join(err, found.Write(o.out), writeReport(o.out, found))
}

// options are what the command line asks for.
type options struct {
	plan        measure.Plan
	contestants []contest.Contestant
	chosen      []measurement
	out, into   string
}

func parse(args []string) (o options, err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	full := flags.Bool("full", false, "measure for publishing: takes about 20 minutes")
	only := flags.String("only", ".", "measure only contestants whose names match this regular `expression`")
	some := flags.String("measure", strings.Join(names(), ","), "measure only these `names`")
	flags.StringVar(&o.out, "out", "", "`file` for the results, JSON; the report is beside it (default "+
		"results/DATE-MODE.json)")
	flags.StringVar(&o.into, "into", "", "`file` of results in which the measurements are replaced by those of this "+
		"run")
	seed := flags.Uint64("seed", uint64(time.Now().UnixNano()), "of everything that is random")
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
	o.plan.Seed = *seed
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
	for _, c := range contest.All() {
		if pattern.MatchString(c.Name) {
			contestants = append(contestants, c)
		}
	}
	if len(contestants) == 0 {
		return nil, fmt.Errorf("-only: no contestant matches %q; there are:\n%s", expression, listed())
	}
	return contestants, nil
}

// measurement is one that -measure can choose.
type measurement struct {
	name string
	do   func(*measure.Lab, context.Context) error
}

var measurements = []measurement{
	{"uncontended", (*measure.Lab).MeasureUncontended},
	{"turns", (*measure.Lab).MeasureTurns},
	{"contended", (*measure.Lab).MeasureContended},
	{"keys", (*measure.Lab).MeasureManyKeys},
	{"orders", (*measure.Lab).MeasureOrders},
	{"faults", (*measure.Lab).MeasureFaults},
	{"network", (*measure.Lab).MeasureNetwork},
	{"crowds", (*measure.Lab).MeasureCrowds},
	{"hand-offs", (*measure.Lab).MeasureHandOffs},
	{"hot-rows", (*measure.Lab).MeasureHotRows},
}

func names() (all []string) {
	for _, m := range measurements {
		all = append(all, m.name)
	}
	return all
}

func choose(list string) (chosen []measurement, err error) {
	wanted := strings.Split(list, ",")
	for _, m := range measurements {
		if slices.Contains(wanted, m.name) {
			chosen = append(chosen, m)
			wanted = slices.DeleteFunc(wanted, func(name string) bool { return name == m.name })
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("-measure: no measurement is called %q; there are %s", wanted[0],
			strings.Join(names(), ", "))
	}
	return chosen, nil
}

func listed() string {
	var b strings.Builder
	for _, c := range contest.All() {
		fmt.Fprintln(&b, "  "+c.Name)
	}
	return b.String()
}

// measureAll starts the servers that the contestants need, measures, and stops the servers. With an
// error it also returns what was measured before.
func measureAll(ctx context.Context, plan measure.Plan, contestants []contest.Contestant, chosen []measurement,
) (found *results.Run, err error) {
	found = &results.Run{Started: time.Now().UTC(), Mode: plan.Mode, Seed: plan.Seed, Settings: plan.Settings()}
	if found.Machine, err = testbed.DescribeMachine(); err != nil {
		return nil, err
	}
	var wanted []contest.Server
	for _, c := range contestants {
		if !slices.Contains(wanted, c.Server) {
			wanted = append(wanted, c.Server)
		}
	}
	if !slices.Contains(wanted, contest.PostgreSQL) && slices.ContainsFunc(
		wanted, func(s contest.Server) bool { return !s.SQL() }) {
		wanted = append(wanted, contest.PostgreSQL) // for the work under locks that are not in a database
	}
	show := newProgress()
	show.say("starting %s", join(wanted))
	bed := testbed.Start(ctx, wanted, func(server contest.Server) { show.say("%s runs", server) })
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
	describe(found, contestants)
	for _, m := range chosen {
		if err = m.do(lab, ctx); err != nil {
			err = fmt.Errorf("%s: %w", m.name, err)
			break
		}
	}
	show.end()
	found.Took = time.Since(found.Started)
	return found, err
}

func describe(found *results.Run, contestants []contest.Contestant) {
	for _, c := range contestants {
		found.Contestants = append(found.Contestants, results.Contestant{
			Name: c.Name, Group: string(c.Group), Server: string(c.Server), Waits: string(c.Waits), Remark: c.Remark,
			Floor: c.Floor, Bare: c.Bare, Leased: c.Leased,
		})
	}
}

func join(servers []contest.Server) string {
	texts := make([]string, len(servers))
	for i, server := range servers {
		texts[i] = string(server)
	}
	return strings.Join(texts, ", ")
}
