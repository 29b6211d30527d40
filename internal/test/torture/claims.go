package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/txlock/txlock"
)

// There are a few claims, each with a counter. Their keys come last.
const (
	claims  = 2
	allKeys = mutexes + elections + semaphores + semaphores*permits + claims
)

func claimKey(claim int) int { return permitKey(semaphores, 0) + claim }

// claimFor is how long a claim is taken for. Some are used when that is over.
const claimFor = time.Second

// claim takes a claim, and adds 1 to its counter in work under it: at once, or late, when another
// may have had the claim meanwhile. Then it commits nothing.
func (l *library[Tx]) claim(ctx context.Context, o *operation, random *rand.Rand, tell func()) error {
	asked := now()
	late := func(err error) bool { return errors.Is(err, txlock.ErrLost) && now()-asked >= int64(claimFor*9/10) }
	claim := l.locks.Claim(keyName(o.Keys[0])).Within(upTo(random, 30*time.Millisecond))
	o.Outcome = failed
	held, err := claim.Take(ctx, o.ID.String(), claimFor)
	if err != nil {
		if errors.Is(err, txlock.ErrNotAcquired) {
			o.Outcome, o.Expected = missed, true
		}
		return err
	}
	o.Token = held.Token()
	tell()
	pause := upTo(random, 5*time.Millisecond)
	if random.IntN(20) == 0 {
		pause = claimFor * 11 / 10
	}
	time.Sleep(pause)
	worked := false
	err = held.Do(ctx, func(ctx context.Context, tx Tx) error {
		defer o.begins(tell)()
		err := l.increment(ctx, tx, o, o.Keys[0], random)
		worked = err == nil
		return err
	})
	if o.Outcome = outcomeOf(err, worked); o.Outcome == failed {
		o.Expected = late(err)
		return err
	}
	if released := held.Release(ctx); released != nil && !late(released) {
		err = errors.Join(err, released)
	}
	return err
}

// checkClaims checks that nobody committed under a claim that another had taken since: in the order
// of the commits, which the counter shows, tokens rise.
func (e *epoch) checkClaims(key int) []violation {
	var committed []*operation
	for _, o := range e.Operations {
		if o.Verb == verbClaim && o.Keys[0] == key && e.after.applied[application{o.ID, key}] > 0 {
			committed = append(committed, o)
		}
	}
	slices.SortFunc(committed, func(a, b *operation) int {
		return cmp.Compare(e.after.seen[application{a.ID, key}], e.after.seen[application{b.ID, key}])
	})
	for i := range max(len(committed)-1, 0) {
		if first, next := committed[i], committed[i+1]; next.Token <= first.Token {
			return []violation{{
				ruleClaims, fmt.Sprintf("key %d: who had token %d committed behind the one with token %d", key,
					next.Token, first.Token),
				[]*operation{first, next},
			}}
		}
	}
	return nil
}

// elections is how many there are. Their keys come behind those of the locks: an operation on one
// of them is a candidacy, its grant the begin of a term, and its token the term.
const elections = 2

func electionName(key int) string { return "torture:" + strconv.Itoa(key) }

// errTwice says that Lead has called its work again: it knew of a loss that the work did not see.
var errTwice = errors.New("the term was lost, as Lead found when its work had returned")

// lead is one candidacy, and ends with its term: a second one would be another operation.
func (l *library[Tx]) lead(ctx context.Context, o *operation, random *rand.Rand, tell func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var leads atomic.Bool
	limited := random.IntN(5) == 0
	if limited {
		defer time.AfterFunc(upTo(random, 30*time.Millisecond), func() {
			if !leads.Load() {
				cancel()
			}
		}).Stop()
	}
	election := l.locks.Election(electionName(o.Keys[0]), o.ID.String())
	var problem error
	err := election.Lead(ctx, func(ctx context.Context, term int64) error {
		if leads.Swap(true) {
			problem = errTwice
			cancel()
			return problem
		}
		o.Granted, o.Token = now(), term
		tell()
		if problem = l.term(ctx, election, o, random, tell); problem != nil {
			cancel()
		}
		return problem
	})
	switch {
	case o.Granted == 0 && limited && errors.Is(err, context.Canceled):
		o.Outcome, o.Expected = missed, true
		return err
	case problem == nil && err == nil && o.Granted != 0:
		o.Outcome = done
		return nil
	}
	o.Outcome = failed
	return errors.Join(problem, err)
}

// term is the work of a leader, which may look who leads.
func (l *library[Tx]) term(ctx context.Context, election *txlock.Election[Tx], o *operation, random *rand.Rand,
	tell func(),
) error {
	noteLoss := o.watch(ctx)
	var stale error
	if random.IntN(4) == 0 {
		brief, cancel := context.WithTimeout(ctx, time.Second)
		leader, err := election.Leader(brief)
		cancel()
		if err == nil && leader.Term < o.Token {
			stale = fmt.Errorf("term %d of %s is what Leader names, and %d has begun", leader.Term,
				leader.Identity, o.Token)
		}
	}
	l.stay(ctx, random, 200)
	o.Released = now()
	tell()
	noteLoss()
	if errors.Is(context.Cause(ctx), txlock.ErrLost) {
		return context.Cause(ctx)
	}
	return stale
}

// There are a few semaphores of so many permits. Their keys come behind those of the elections, and
// then a key for each permit: an operation that waits has the semaphore's, and one that holds has
// the permit's and the semaphore's. So what is claimed of locks is claimed of permits.
const (
	semaphores = 2
	permits    = 3
)

func semaphoreKey(semaphore int) int { return mutexes + elections + semaphore }

func permitKey(semaphore, permit int) int {
	return semaphoreKey(semaphores) + semaphore*permits + permit
}

func isSemaphore(key int) bool { return key >= semaphoreKey(0) && key < semaphoreKey(semaphores) }

// checkPermits checks that no more operations certainly held a semaphore at once than it has
// permits, and that each had one of its permits.
func (e *epoch) checkPermits(key int, holds []hold) (violations []violation) {
	semaphore := key - semaphoreKey(0)
	report := func(operations []*operation, format string, args ...any) {
		violations = append(violations, violation{
			rulePermits, fmt.Sprintf("semaphore %d: ", semaphore) + fmt.Sprintf(format, args...),
			operations,
		})
	}
	var inside []hold // by their ends
	for _, h := range holds {
		if h.Permit < 0 || h.Permit >= permits || h.Keys[0] != permitKey(semaphore, h.Permit) {
			report([]*operation{h.operation}, "%d is no permit of it", h.Permit)
		}
		gone := 0
		for gone < len(inside) && inside[gone].end <= h.Granted {
			gone++
		}
		inside = inside[gone:]
		if h.end <= h.Granted {
			continue
		}
		at, _ := slices.BinarySearchFunc(inside, h, func(a, b hold) int { return cmp.Compare(a.end, b.end) })
		inside = slices.Insert(slices.Clone(inside), at, h)
		if len(inside) > permits {
			var operations []*operation
			for _, h := range inside {
				operations = append(operations, h.operation)
			}
			report(operations, "%d held it at once", len(inside))
		}
	}
	return violations
}
