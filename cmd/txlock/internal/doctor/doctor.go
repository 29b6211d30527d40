// Package doctor examines a database server for txlock. It finds out whether the server locks rows,
// whether the lock table is intact, and what would end a lock or a wait early. It changes nothing.
// It locks one free slot after another for a moment.
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

// The severities, from the best to the worst. A note is good to know; no lock needs it repaired. A
// warning is about something that ends locks, waits or tokens against the user's will; txlock
// reports it when it happens. A failure means that locks do not work, or are not safe.
const (
	OK      Severity = "ok"
	Note    Severity = "note"
	Warning Severity = "warning"
	Failure Severity = "failure"
)

// Severities are all of them, from the best to the worst.
var Severities = []Severity{OK, Note, Warning, Failure}

// Finding is the result of one look at one thing.
type Finding struct {
	Check    string   `json:"check"` // a short, stable identifier
	Severity Severity `json:"severity"`
	Found    string   `json:"found"`         // with the value
	Why      string   `json:"why,omitempty"` // why it matters to a lock
	Fix               // its fields are the finding's own in JSON
}

// Worst is the severity of the worst finding, and OK where there is none.
func Worst(findings []Finding) Severity {
	worst := 0
	for _, finding := range findings {
		worst = max(worst, slices.Index(Severities, finding.Severity))
	}
	return Severities[worst]
}

// check looks at one thing. An error from the server means that nobody could look at it.
type check struct {
	name string
	look func(context.Context) ([]Finding, error)
}

// run makes all checks. broken tells whether an error means that the server can no longer be asked.
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
			// The error of several addresses has several lines.
			finding.Found = strings.Join(strings.Fields(finding.Found), " ")
			findings = append(findings, finding)
		}
	}
	return findings, nil
}

// unseen is the finding for a check that failed with an error. It is a warning where the safety of
// locks depends on what the check would have seen.
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

// lease is the default of txlock.New. A setting that ends a session sooner breaks what txlock
// promises.
const lease = 30 * time.Second

// proof judges the answer of Locker.Check. because says what prevented the attempt, if anything
// did; another finding says more about that.
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
	default: // it may well lock
		finding.Severity, finding.Found = Warning, "it could not be proved: "+err.Error()
	}
	return finding
}

// slotted says why broken slots matter.
const slotted = "a key is locked by the row of its slot, and the number of slots says which that is"

// missing is the finding for a lock table that does not exist. creation makes the table.
func missing(err error, table string, creation Fix) Finding {
	return Finding{
		Check: "table", Severity: Failure, Found: "table " + table + " is missing: " + err.Error(),
		Why: slotted, Fix: creation,
	}
}

// slots judges the census of a lock table. asked is the error of the query for it. drop removes a
// table that Install cannot complete.
func slots(census string, asked error, table, drop string) Finding {
	finding := Finding{Check: "table", Severity: Failure, Why: slotted, Fix: renewal(drop, table)}
	if asked != nil {
		finding.Found = "table " + table + " has another shape: " + asked.Error()
		return finding
	}
	number, _, err := locktable.Slots(table, []string{census}, 0)
	if err == nil {
		return Finding{Check: "table", Severity: OK, Found: fmt.Sprintf("%s is complete, with %d slots", table, number)}
	}
	finding.Found = err.Error()
	if number > 0 {
		finding.Fix = command(install(table) + "  # as a user who may INSERT there, such as the table's owner")
	}
	return finding
}

// These reasons prevent the proof.
const (
	fewSessions = "it takes two more connections"
	mayNotLock  = "this user may not lock"
)

// drawn says why it matters that tokens cannot be drawn.
const drawn = "WithFencing draws its tokens from there, and so does txlock run unless it is told --no-token: without " +
	"them it does not run"

// room is a limit of connections, and how many of them are in use.
type room struct {
	limit, used int
	of          string // whose limit it is
	fix         Fix
}

func (r room) free() int { return r.limit - r.used }

// connections judges the limit with the least room.
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

// crowded is the finding for a server that accepts no connection.
func crowded(err error, fix Fix) Finding {
	return Finding{
		Check: "connections", Severity: Failure, Found: "the server has no connection left: " + err.Error(), Fix: fix,
		Why: "every held lock and every waiter has a connection of its own",
	}
}

// clock compares the server's clock with this machine's, using one query.
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

// kebab turns a server's setting into the name of a check.
func kebab(setting string) string { return strings.ReplaceAll(setting, "_", "-") }
