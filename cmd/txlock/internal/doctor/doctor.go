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

// check is a row of a server's table: look reports what is wrong with one thing, and returns what
// to say if that is nothing. An error from the server means that nobody could look at it.
type check struct {
	name string
	look func(context.Context, report) (fine string, err error)
}

// report takes the findings of a check.
type report struct {
	check    string
	findings *[]Finding
}

// named is the report of a part of the check, which has a name of its own.
func (r report) named(check string) report { return report{check, r.findings} }

func (r report) add(severity Severity, found, why string, fix Fix) {
	found = strings.Join(strings.Fields(found), " ") // the error of several addresses has several lines
	*r.findings = append(*r.findings, Finding{r.check, severity, found, why, fix})
}

func (r report) ok(found string)                  { r.add(OK, found, "", Fix{}) }
func (r report) note(found, why string, fix Fix)  { r.add(Note, found, why, fix) }
func (r report) warn(found, why string, fix Fix)  { r.add(Warning, found, why, fix) }
func (r report) fails(found, why string, fix Fix) { r.add(Failure, found, why, fix) }

// run makes all checks. broken tells whether an error means that the server can no longer be asked.
func run(ctx context.Context, checks []check, broken func(error) bool) (findings []Finding, err error) {
	for _, check := range checks {
		r, before := report{check.name, &findings}, len(findings)
		fine, err := check.look(ctx, r)
		switch ended := ctx.Err(); {
		case ended != nil:
			return nil, fmt.Errorf("doctor: %w", ended)
		case err != nil && broken(err):
			return nil, fmt.Errorf("doctor: %s: %w", check.name, err)
		case err != nil:
			r.unseen(err)
		case fine != "" && len(findings) == before:
			r.ok(fine)
		}
	}
	return findings, nil
}

// unseen is for a check that failed with an error. It is a warning where the safety of locks
// depends on what the check would have seen.
func (r report) unseen(err error) {
	found := "it could not be looked at: " + err.Error()
	switch r.check {
	case "table", "privileges", "read-only", "cluster":
		r.warn(found, "what there is to find may keep locks from working, or from being safe", Fix{})
	default:
		r.note(found, "nobody knows what there is to find", Fix{})
	}
}

// lease is the default of txlock.New. A setting that ends a session sooner breaks what txlock
// promises.
const lease = 30 * time.Second

// limit is a setting that ends a lock, a wait or a session after some time. What why says was seen
// on servers: see the tests.
type limit struct {
	name        string
	unit        time.Duration
	short, long Severity // where it is less than the lease, and else; 0 is off, which is OK
	heal        string   // the value of the fix; another than 0 only if it is short
	besides     string
	why         string
}

func (r report) limit(l limit, value time.Duration, origin string, set func(name, value string) Fix) {
	r = r.named(kebab(l.name))
	found, severity := fmt.Sprintf("%s = %v%s%s", l.name, value, origin, l.besides), l.long
	if value < lease {
		severity = l.short
	}
	switch {
	case value == 0:
		r.ok(l.name + " is off" + l.besides)
	case severity == OK:
		r.ok(found)
	case l.heal == "0" || value < lease:
		r.add(severity, found, l.why, set(l.name, l.heal))
	default:
		r.add(severity, found, l.why, Fix{})
	}
}

// proof judges the answer of Locker.Check. because says what prevented the attempt, if anything
// did; another finding says more about that.
func (r report) proof(err error, because string) {
	const why = "every promise of txlock rests on it that two sessions cannot hold one row"
	if errors.Is(err, txlock.ErrNotInstalled) {
		because = "the lock table is not installed"
	}
	switch {
	case err == nil:
		r.ok("two sessions exclude each other, and a row that is released can be locked again")
	case because != "":
		r.note("it could not be tried: "+because, why, Fix{})
	case errors.Is(err, txlock.ErrUnsafeEngine):
		r.fails(err.Error(), why, advice("connect to a server that locks rows, or take what is named there out of "+
			"the way"))
	default: // it may well lock
		r.warn("it could not be proved: "+err.Error(), why, advice("mend what the error names, and run this again"))
	}
}

// slotted says why broken slots matter.
const slotted = "a key is locked by the row of its slot, and the number of slots says which that is"

// slots judges the census of a lock table. asked is the error of the query for it. drop removes a
// table that Install cannot complete.
func (r report) slots(census string, asked error, table, drop string) {
	if asked != nil {
		r.fails("table "+table+" has another shape: "+asked.Error(), slotted, renewal(drop, table))
		return
	}
	number, _, err := locktable.Slots(table, []string{census}, 0)
	switch {
	case err == nil:
		r.ok(fmt.Sprintf("%s is complete, with %d slots", table, number))
	case number > 0:
		r.fails(err.Error(), slotted,
			command(install(table)+"  # as a user who may INSERT there, such as the table's owner"))
	default:
		r.fails(err.Error(), slotted, renewal(drop, table))
	}
}

// mayNotLock prevents the proof.
const mayNotLock = "this user may not lock"

// drawn says why it matters that tokens cannot be drawn.
const drawn = "WithFencing draws its tokens from there, and so does txlock run unless it is told --no-token: without " +
	"them it does not run"

// kinds are the tables of the other kinds of locks, what a role needs there, and for what.
var kinds = []struct{ suffix, privileges, why string }{
	{"_leaders", "SELECT, INSERT, UPDATE", "who campaigns in an Election, or asks who leads, needs it"},
	{"_once", "SELECT, INSERT, UPDATE, DELETE", "a Once needs it, and Sweep"},
	{"_claims", "SELECT, INSERT, UPDATE, DELETE", "a Claim needs it, and Sweep"},
	{"_permits", "SELECT, INSERT, UPDATE", "a Semaphore needs it"},
}

// kebab turns a server's setting into the name of a check.
func kebab(setting string) string { return strings.ReplaceAll(setting, "_", "-") }
