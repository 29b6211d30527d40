package measure

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/database"
	"github.com/txlock/txlock/bench/results"
	"github.com/txlock/txlock/bench/testbed"
)

// Lab runs the measurements.
type Lab struct {
	Plan
	Testbed *testbed.Testbed
	// Tell reports the progress of a measurement.
	Tell func(measurement string, done, total int)

	entrants []contest.Contestant             // prepared
	far      map[contest.Server]testbed.Proxy // the servers at the end of a network; nil: near
	crew     *crew.Crew
	board    *crew.Board

	mu  sync.Mutex
	run *results.Run
}

// Setup prepares contestants and starts a crew. Contestants that cannot take part are noted as
// missing.
func Setup(ctx context.Context, plan Plan, bed *testbed.Testbed, contestants []contest.Contestant, folder string,
	run *results.Run,
) (*Lab, error) {
	lab := &Lab{Plan: plan, Testbed: bed, Tell: func(string, int, int) {}, run: run}
	if err := lab.open(ctx, folder); err != nil {
		lab.Close()
		return nil, err
	}
	lab.prepare(ctx, contestants)
	return lab, ctx.Err()
}

// open opens what the measurements use besides the contestants.
func (l *Lab) open(ctx context.Context, folder string) (err error) {
	if l.board, err = crew.NewBoard(folder); err != nil {
		return err
	}
	if l.crew, err = crew.New(processes); err != nil {
		return err
	}
	for _, server := range contest.Databases {
		if l.Testbed.Missing(server) == nil {
			err = errors.Join(err, database.Run(ctx, server, l.Testbed.Address(server),
				"DROP TABLE IF EXISTS "+crew.AccountTable,
				"CREATE TABLE "+crew.AccountTable+" (name VARCHAR(100) PRIMARY KEY, number BIGINT NOT NULL)"))
		}
	}
	return err
}

func (l *Lab) prepare(ctx context.Context, contestants []contest.Contestant) {
	for _, c := range contestants {
		err := l.Testbed.Missing(c.Server)
		if err == nil && c.Prepare != nil {
			err = c.Prepare(ctx, l.environment(c, lease, 4))
		}
		if err != nil {
			l.missing(c, "", err)
			continue
		}
		l.entrants = append(l.entrants, c)
	}
}

// Close ends the crew.
func (l *Lab) Close() {
	if l.crew != nil {
		l.crew.Close()
	}
	if l.board != nil {
		_ = l.board.Close()
	}
}

func (l *Lab) environment(c contest.Contestant, lease time.Duration, contenders int) contest.Environment {
	return contest.Environment{Address: l.address(c.Server), Lease: lease, Contenders: contenders}
}

// address is the address for clients, which may have a network in between.
func (l *Lab) address(server contest.Server) string {
	if proxy, far := l.far[server]; far {
		return proxy.Address
	}
	return l.Testbed.Address(server)
}

func (l *Lab) entrant(c contest.Contestant, lease time.Duration, contenders int) crew.Entrant {
	return crew.Entrant{Contestant: c.Name, Environment: l.environment(c, lease, contenders), Books: l.books(c)}
}

// books is the database of the work under a lock: the lock's own server, or PostgreSQL.
func (l *Lab) books(c contest.Contestant) crew.Books {
	server := c.Server
	if !server.SQL() {
		server = contest.PostgreSQL
	}
	return crew.Books{Server: server, Address: l.address(server)}
}

// shuffled returns the contestants in a new random order.
func (l *Lab) shuffled(of []contest.Contestant) []contest.Contestant {
	order := make([]contest.Contestant, len(of))
	for i, j := range rand.Perm(len(of)) {
		order[i] = of[j]
	}
	return order
}

// in are the contestants that take part in any of some measurements.
func (l *Lab) in(parts contest.Part) (entrants []contest.Contestant) {
	for _, c := range l.entrants {
		if c.In(parts) {
			entrants = append(entrants, c)
		}
	}
	return entrants
}

// missing notes once for each reason that a contestant took no part in a measurement. An empty
// measurement stands for all.
func (l *Lab) missing(c contest.Contestant, measurement string, reason error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one := results.Missing{Contestant: c.Name, Measurement: measurement, Reason: impersonal(reason.Error())}
	if !slices.Contains(l.run.Missing, one) {
		l.run.Missing = append(l.run.Missing, one)
	}
}

// failed notes that calls failed, and one of their errors.
func (l *Lab) failed(c contest.Contestant, measurement string, report crew.Message) {
	if report.Failure != "" {
		l.missing(c, measurement, fmt.Errorf("took part, but calls failed: %s", report.Failure))
	}
}

var placeOnMachine = regexp.MustCompile(`(127\.0\.0\.1|localhost):\d+|/(?:home|root|tmp|usr|var)/[^\s:,;"']+`)

// impersonal removes addresses and paths of this machine from a text.
func impersonal(text string) string { return placeOnMachine.ReplaceAllString(text, "…") }

// rounds measures each of all once in each round, in a new random order.
func rounds[Cell any](ctx context.Context, l *Lab, name string, count int, all []Cell, measure func(Cell) error) error {
	total, done := count*len(all), 0
	for range count {
		for _, i := range rand.Perm(len(all)) {
			l.Tell(name, done, total)
			done++
			if err := measure(all[i]); err != nil {
				return err
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
		}
	}
	l.Tell(name, total, total)
	return nil
}

// fill measures a round of each cell, so many times, and returns the cells that have any. The name
// of a cell's contestant and its rounds are where at says.
func fill[Cell, Round any](ctx context.Context, l *Lab, name string, count int, all []Cell,
	at func(*Cell) (contestant string, found *[]Round),
	measure func(ctx context.Context, c contest.Contestant, cell Cell) (Round, error),
) (measured []Cell, err error) {
	cells := pointers(all)
	err = rounds(ctx, l, name, count, cells, func(cell *Cell) error {
		contestant, found := at(cell)
		c, err := contest.Find(contestant)
		if err != nil {
			return err
		}
		round, err := measure(ctx, c, *cell)
		if err != nil {
			l.missing(c, name, err)
			return nil
		}
		*found = append(*found, round)
		return nil
	})
	for _, cell := range cells {
		if _, found := at(cell); len(*found) > 0 {
			measured = append(measured, *cell)
		}
	}
	return measured, err
}

// pointers point to all cells, which rounds then fill wherever they stand.
func pointers[Cell any](all []Cell) (to []*Cell) {
	for i := range all {
		to = append(to, &all[i])
	}
	return to
}
