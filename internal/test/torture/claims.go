package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
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
