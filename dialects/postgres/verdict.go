package postgres

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/internal/missing"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
)

// A guest's lock, and a foreign one, travel in one flight with the savepoint in front and its
// release behind. So what would otherwise be read from the answers must be an error: then the
// release is not reached, and the rollback to the savepoint gives everything back. A client library
// that shows no answers needs none.

// verdicts are what such an error says, by its name.
var verdicts = map[string]error{
	unsuitable: errSnapshot,
	missed:     errMissed,
	otherRows:  missing.ErrRows,
	noRun:      fencing.ErrNoRun,
}

const (
	unsuitable = "unsuitable" // transaction; see primarySQL and errSnapshot
	otherRows  = "others"
	missed     = "missed" // a try that others were in front of
	noRun      = "run"    // of the server that has an epoch
)

var errMissed = fmt.Errorf("%w: another session holds it or waits for it", dialects.ErrNotAcquired)

// ours tells a verdict from what somebody's value may say.
var ours = rand.Text()

// failSQL is an integer that is none. The server shows what it is instead. It must not know the
// text before the statement runs.
func failSQL(verdict string) string { return "concat('txlock: ', '" + verdict + " " + ours + "')::int" }

// verdictSQL counts the rows that were locked. A try of one row that has not passed its turnstile
// has taken nothing. It is no error, which the server would log, where the turnstile's answer is
// read, and no savepoint for a nested Do comes behind.
func verdictSQL(request dialects.Request, on terms) string {
	var cases string
	if on.as == foreign {
		cases += "when not (" + suitableSQL(request) + ") then " + failSQL(unsuitable) + " "
	}
	if request.Try {
		verdict := failSQL(missed)
		if !on.blind && on.nest == "" && len(request.Values) == 1 {
			verdict = "0"
		}
		cases += "when current_setting('" + passedSetting + "', true) is distinct from 'true' then " + verdict + " "
	}
	return "case " + cases + "when count(distinct locked) < " + strconv.Itoa(len(request.Values)) + " then " +
		failSQL(otherRows) + " end"
}

// suitableSQL is the condition for a lock in a foreign transaction.
func suitableSQL(request dialects.Request) string {
	if request.Shared {
		return isolationSQL + " and " + primarySQL
	}
	return isolationSQL
}

// verdictOf is what a flight's error says, or nil.
func verdictOf(err error) error {
	if server.State(err) != server.InvalidText {
		return nil
	}
	for name, verdict := range verdicts {
		if strings.Contains(err.Error(), "txlock: "+name+" "+ours) {
			return verdict
		}
	}
	return nil
}
