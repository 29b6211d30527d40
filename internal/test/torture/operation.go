package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/txlock/txlock"
	"golang.org/x/sys/unix"
)

// now is the machine's monotonic clock in nanoseconds. All processes share it, so their reports can
// be merged into one history.
func now() int64 {
	var at unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &at); err != nil {
		panic(err) // the clock exists on every system that this builds on
	}
	return at.Nano()
}

// outcome is how an operation ended.
type outcome string

const (
	open    outcome = ""        // not ended yet, or its process was killed
	done    outcome = "done"    // acknowledged
	missed  outcome = "missed"  // never granted
	failed  outcome = "failed"  // an error, with the promise that nothing took effect
	unknown outcome = "unknown" // an error that leaves open whether it took effect
)

// outcomeOf is how a call ended whose work was done, or was not. Do and Exec promise to say when
// the end is unknown.
func outcomeOf(err error, worked bool) outcome {
	switch {
	case err == nil:
		return done
	case worked && errors.Is(err, txlock.ErrUnknown):
		return unknown
	}
	return failed
}

// operation is one use of the lock. Times come from now; 0 means that it did not happen.
type operation struct {
	ID        operationID `json:"id"`
	Process   int         `json:"process"`
	Goroutine int         `json:"goroutine"`
	Verb      verb        `json:"verb"`
	Keys      []int       `json:"keys"`

	Call     int64 `json:"call"`
	Granted  int64 `json:"granted,omitempty"`
	Released int64 `json:"released,omitempty"` // when it began to give the lock back
	Return   int64 `json:"return,omitempty"`
	Deadline int64 `json:"deadline,omitempty"` // when the context of its work ends
	Lost     int64 `json:"lost,omitempty"`     // when its context ended with ErrLost
	Died     int64 `json:"died,omitempty"`     // when its process was killed

	Outcome  outcome `json:"outcome"`
	Expected bool    `json:"expected,omitempty"` // the operation provoked the error: a try, a deadline
	Error    string  `json:"error,omitempty"`
	Reads    []int64 `json:"reads,omitempty"` // the counter of each key, as read under the lock
	Again    []int64 `json:"again,omitempty"` // the same, as a reader finds them before it lets go
	Permit   int     `json:"permit,omitempty"`
	Work     int64   `json:"work,omitempty"` // what is to be done once
	Ran      bool    `json:"ran,omitempty"`  // the call was told that its work is the one
	Token    int64   `json:"token,omitempty"`
}

// begins notes that the operation has what it asked for. What it returns notes that the operation
// begins to give that back.
func (o *operation) begins(tell func()) (ends func()) {
	o.Granted = now()
	tell()
	return func() {
		o.Released = now()
		tell()
	}
}

// watch looks for the loss of a lock. What it returns is called when the operation has given the
// lock back, and notes a loss that came before: Unlock ends the context, too.
func (o *operation) watch(ctx context.Context) (noteLoss func()) {
	var lost atomic.Int64
	stop := context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), txlock.ErrLost) {
			lost.Store(now())
		}
	})
	return func() {
		stop()
		if at := lost.Load(); at <= o.Released {
			o.Lost = at
		}
	}
}

// upTo is a time of up to d, and never 0.
func upTo(random *rand.Rand, d time.Duration) time.Duration {
	return 1 + time.Duration(random.Int64N(int64(d)))
}

type verb string

const (
	verbDo      verb = "Do"
	verbTryDo   verb = "TryDo"
	verbExec    verb = "Exec"
	verbTryExec verb = "TryExec"
	verbLock    verb = "Lock"
	verbTryLock verb = "TryLock"
	verbLead    verb = "Lead"

	verbShare    verb = "Shared.Lock"
	verbTryShare verb = "Shared.TryLock"
	verbRead     verb = "Shared.Do"

	verbPermit    verb = "Semaphore.Lock"
	verbTryPermit verb = "Semaphore.TryLock"

	verbOnce    verb = "Once.Do"
	verbTryOnce verb = "Once.TryDo"
	verbOnceTx  verb = "Once.DoTx"

	verbClaim verb = "Claimed.Do"

	verbJob verb = "AnyRows.Do"
)

// holds tells whether the operation's work is outside the lock's transaction.
func (v verb) holds() bool {
	return v == verbLock || v == verbTryLock || v == verbLead || v == verbShare || v == verbTryShare || v.permits()
}

func (v verb) tries() bool {
	switch v {
	case verbTryLock, verbTryDo, verbTryExec, verbTryShare, verbTryPermit, verbTryOnce, verbClaim: // not in order
		return true
	}
	return false
}

// updates tells whether the operation changes counters, or a job, in the lock's transaction.
func (v verb) updates() bool {
	return v == verbDo || v == verbTryDo || v.flies() || v == verbClaim || v == verbJob
}

// flies tells whether the lock, the changes and the COMMIT travel together. Nobody is told when the
// lock was granted.
func (v verb) flies() bool { return v == verbExec || v == verbTryExec }

func (v verb) shares() bool  { return v == verbShare || v == verbTryShare || v == verbRead }
func (v verb) permits() bool { return v == verbPermit || v == verbTryPermit }
func (v verb) once() bool    { return v == verbOnce || v == verbTryOnce || v == verbOnceTx }

// operationID is unique in a run. It consists of the process, the number of its starts, and a
// sequence number.
type operationID int64

const (
	sequenceBits = 34
	startBits    = 20
)

func newOperationID(process, start int, sequence int64) operationID {
	return operationID(int64(process)<<(sequenceBits+startBits) | int64(start)<<sequenceBits | sequence)
}

func (id operationID) String() string {
	return fmt.Sprintf("%d.%d.%d", id>>(sequenceBits+startBits), id>>sequenceBits&(1<<startBits-1),
		id&(1<<sequenceBits-1))
}

// String describes the operation in one line, with times in milliseconds since its call.
func (o *operation) String() string {
	since := func(at int64) string {
		if at == 0 {
			return "never"
		}
		return fmt.Sprintf("%+.3f", float64(at-o.Call)/1e6)
	}
	return fmt.Sprintf("%v %s keys %v: called %.3f, granted %s, released %s, lost %s, killed %s, returned %s ms, %q; "+
		"token %d, permit %d, work %d, ran %t, read %v, again %v, error: %s", o.ID, o.Verb, o.Keys,
		float64(o.Call)/1e6, since(o.Granted), since(o.Released), since(o.Lost), since(o.Died), since(o.Return),
		o.Outcome, o.Token, o.Permit, o.Work, o.Ran, o.Reads, o.Again, o.Error)
}

// message is a line between a worker and its parent.
type message struct {
	// From workers: ready, operation, stalled, resting, ended. From the parent: work, rest, end.
	Event     string     `json:"event"`
	Operation *operation `json:"operation,omitempty"`
	Stall     *fault     `json:"stall,omitempty"`
	Problem   string     `json:"problem,omitempty"` // what a worker found wrong at its end
}
