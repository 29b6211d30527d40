package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/txlock/txlock"
)

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
