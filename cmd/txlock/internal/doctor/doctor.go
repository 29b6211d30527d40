// Package doctor examines a database server for txlock: whether it locks, whether the lock table is
// intact, and what there would cut a lock, or a wait for one. It changes nothing, and locks one
// free slot after another for a moment.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/locktable"
)

// Severity is how bad a finding is.
type Severity string

// The severities, from the best to the worst. A note is good to know, and nothing to repair for the
// lock's sake. A warning is of something that ends locks, or waits, or tokens, which txlock
// reports, but nobody asked for. With a failure locks do not work, or are not safe.
const (
	OK      Severity = "ok"
	Note    Severity = "note"
	Warning Severity = "warning"
	Failure Severity = "failure"
)

var severities = []Severity{OK, Note, Warning, Failure}

// Finding is one thing that was looked at.
type Finding struct {
	Check    string   `json:"check"` // a short, stable identifier
	Severity Severity `json:"severity"`
	Found    string   `json:"found"`         // what was found, with the value
	Why      string   `json:"why,omitempty"` // why it matters to a lock
	Fix               // its fields are the finding's own in JSON
}

// Worst is the severity of the worst finding, and OK where there is none.
func Worst(findings []Finding) Severity {
	worst := 0
	for _, finding := range findings {
		worst = max(worst, slices.Index(severities, finding.Severity))
	}
	return severities[worst]
}

// check looks at one thing. An error of the server's says that it could not be looked at.
type check struct {
	name string
	look func(context.Context) ([]Finding, error)
}

// run looks at everything. broken tells whether an error means that the server cannot be asked any
// more.
func run(ctx context.Context, checks []check, broken func(error) bool) ([]Finding, error) {
	var findings []Finding
	for _, check := range checks {
		found, err := check.look(ctx)
		if ended := ctx.Err(); ended != nil {
			return nil, fmt.Errorf("doctor: %w", ended)
		}
		if err != nil && broken(err) {
			return nil, fmt.Errorf("doctor: %s: %w", check.name, err)
		}
		if err != nil {
			found = append(found, unseen(check.name, err))
		}
		for _, finding := range found {
			if finding.Check == "" {
				finding.Check = check.name
			}
			// errors of several addresses have several lines
			finding.Found = strings.Join(strings.Fields(finding.Found), " ")
			findings = append(findings, finding)
		}
	}
	return findings, nil
}

// unseen is a check that an error kept from being made. That is worse where the safety of locks
// depends on what was to be seen.
func unseen(check string, err error) Finding {
	finding := Finding{
		Severity: Note, Found: "it could not be looked at: " + err.Error(),
		Why: "nobody knows what there is to find",
	}
	switch check {
	case "table", "privileges", "read-only", "cluster":
		finding.Severity, finding.Why = Warning, "what there is to find may keep locks from working, or from being safe"
	}
	return finding
}

func one(finding Finding) []Finding { return []Finding{finding} }

// lease is that of txlock.New. Whatever cuts a session sooner cuts it sooner than txlock promises.
const lease = 30 * time.Second

// proof judges the answer of Locker.Check. because is what kept it from trying, which another
// finding says more about.
func proof(err error, because string) Finding {
	finding := Finding{
		Check: "row-locking", Severity: Failure,
		Why: "every promise of txlock rests on it that two sessions cannot hold one row",
	}
	if errors.Is(err, txlock.ErrNotInstalled) {
		because = "the lock table is not installed"
	}
	switch {
	case err == nil:
		return Finding{
			Check: "row-locking", Severity: OK,
			Found: "two sessions exclude each other, and a row that is released can be locked again",
		}
	case because != "":
		finding.Severity, finding.Found = Note, "it could not be tried: "+because
	case errors.Is(err, txlock.ErrUnsafeEngine):
		finding.Found, finding.Fix = err.Error(), advice(
			"connect to a server that locks rows, or take what is named there out of the way")
	default:
		finding.Found = "it could not be proved: " + err.Error()
	}
	return finding
}

// slotted is why it matters what is wrong with the slots.
const slotted = "a key is locked by the row of its slot, and the number of slots says which that is"

// missing is for a lock table that is not there. creation is what makes it.
func missing(err error, table string, creation Fix) Finding {
	return Finding{
		Check: "table", Severity: Failure, Found: "table " + table + " is missing: " + err.Error(),
		Why: slotted, Fix: creation,
	}
}

// slots judges what a lock table says of itself. asked is the error of asking. drop is what takes a
// table away that Install cannot complete.
func slots(census locktable.Census, asked error, table, drop string) Finding {
	finding := Finding{Check: "table", Severity: Failure, Why: slotted, Fix: renewal(drop, table)}
	if asked != nil {
		finding.Found = "table " + table + " has another shape: " + asked.Error()
		return finding
	}
	number, err := census.Seeded(table)
	if err == nil {
		return Finding{Check: "table", Severity: OK, Found: fmt.Sprintf("%s is complete, with %d slots", table, number)}
	}
	finding.Found = locktable.WithoutAdvice(err)
	if _, hopeless := census.Wanted(table, 0); hopeless == nil && (census.Rows < census.MaxSlots || census.Rows == 0) {
		finding.Fix = command(install(table) + "  # as a user who may INSERT there, such as the table's owner")
	}
	return finding
}

// What keeps the proof from being tried.
const (
	fewSessions = "it takes two more connections"
	mayNotLock  = "this user may not lock"
)

// drawn is why it matters that tokens cannot be drawn.
const drawn = "WithFencing draws its tokens from there, and so does txlock run unless it is told --no-token: without " +
	"them it does not run"

// room is how many connections may be open, and are.
type room struct {
	limit, used int
	of          string // whose limit it is
	fix         Fix
}

func (r room) free() int { return r.limit - r.used }

// connections judges the least room, where there are several limits.
func connections(rooms ...room) Finding {
	least := slices.MinFunc(rooms, func(a, b room) int { return a.free() - b.free() })
	finding := Finding{
		Check: "connections", Severity: OK,
		Found: fmt.Sprintf("%d of %d connections of %s are free", max(least.free(), 0), least.limit, least.of),
	}
	if least.free() < 5 || least.free()*10 < least.limit {
		finding.Severity, finding.Fix = Warning, least.fix
		finding.Why = "every held lock and every waiter has a connection of its own; where none is left, a lock " +
			"fails with the server's error"
	}
	return finding
}

// crowded is for a server that lets nobody in.
func crowded(err error, fix Fix) Finding {
	return Finding{
		Check: "connections", Severity: Failure, Found: "the server has no connection left: " + err.Error(), Fix: fix,
		Why: "every held lock and every waiter has a connection of its own",
	}
}

// clock compares the server's clock with this machine's, by the answer to one question.
func clock(asked, answered, server time.Time) Finding {
	half := answered.Sub(asked) / 2
	ahead := server.Sub(asked.Add(half))
	differs := fmt.Sprintf("is %v ahead of", ahead.Round(time.Millisecond))
	switch {
	case ahead.Abs() < half+time.Millisecond:
		differs = "agrees with"
	case ahead < 0:
		differs = fmt.Sprintf("is %v behind", ahead.Abs().Round(time.Millisecond))
	}
	return Finding{
		Check: "clock", Severity: OK,
		Found: fmt.Sprintf("the server's clock %s this machine's (measured to ± %v), which does not matter: no lock "+
			"depends on a clock", differs, half.Round(time.Microsecond)),
	}
}

// kebab is a server's setting as the name of a check.
func kebab(setting string) string { return strings.ReplaceAll(setting, "_", "-") }
