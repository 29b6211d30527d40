package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"
)

func unfinished(operations []*operation) []*operation {
	var found []*operation
	for _, o := range operations {
		if o.Return == 0 && o.Died == 0 {
			found = append(found, o)
		}
	}
	return found
}

// judge checks an epoch.
func (t *trial) judge(ctx context.Context, e *epoch) error {
	ctx = context.WithoutCancel(ctx)
	var violations []violation
	busy := func(busy, _ []int64) int { return len(busy) }
	if err := t.data.settle(ctx, 2*t.lease+5*time.Second, busy); err != nil {
		violations = append(violations, violation{Rule: ruleRest, Text: err.Error()})
	}
	if err := t.ask(ctx, looker.free); err != nil {
		violations = append(violations, violation{Rule: ruleRest, Text: err.Error()})
	}
	var err error
	if e.after, err = t.data.read(ctx); err != nil {
		return err
	}
	err = t.ask(ctx, func(l looker, ctx context.Context) (err error) {
		e.after.marked, err = l.markers(ctx, e.Operations)
		return err
	})
	if err != nil {
		violations = append(violations, violation{Rule: ruleOnce, Text: err.Error()})
	}
	for _, problem := range t.crew.complaints() {
		violations = append(violations, violation{Rule: ruleRest, Text: problem})
	}
	violations = append(violations, t.check(e)...)
	t.result.count(e)
	t.violate(e, violations...)
	return nil
}

// check returns the violations in the history and the ledger of an epoch.
func (t *trial) check(e *epoch) []violation {
	holds := e.holds()
	violations := e.checkErrors()
	violations = append(violations, e.checkSet()...)
	violations = append(violations, e.checkSums()...)
	violations = append(violations, e.checkReaders()...)
	violations = append(violations, e.checkOnce()...)
	violations = append(violations, e.assess(t.result.Damages, holds)...)
	for key := range allKeys {
		if isSemaphore(key) {
			violations = append(violations, e.checkPermits(key, holds[key])...)
		} else {
			violations = append(violations, e.checkMutex(key, holds[key])...)
			violations = append(violations, e.checkDo(key)...)
			violations = append(violations, e.checkClaims(key)...)
			violations = append(violations, t.tokens.check(key, holds[key])...)
		}
		if t.Cluster != onGalera { // where nobody keeps an order among nodes
			violations = append(violations, e.checkQueue(key, holds[key])...)
		}
	}
	return violations
}

// violate prints the violations, and saves the history of the epoch in a file.
func (t *trial) violate(e *epoch, violations ...violation) {
	if len(violations) == 0 {
		return
	}
	if path, err := t.keep(e); err != nil {
		fmt.Fprintln(t.out, "the history could not be kept:", err)
	} else if path != "" {
		fmt.Fprintf(t.out, "history of epoch %d, seed %d: %s\n", e.Number, e.Seed, path)
	}
	for i, v := range violations {
		if len(t.result.Violations) < enough || i == 0 {
			v.print(t.out, t.Seed)
		}
		t.result.Violations = append(t.result.Violations, v)
	}
}

func (t *trial) keep(e *epoch) (string, error) {
	if e == nil {
		return "", nil
	}
	file, err := os.CreateTemp(t.Histories, "txlock-torture-*.json")
	if err != nil {
		return "", err
	}
	return file.Name(), errors.Join(json.NewEncoder(file).Encode(e), file.Close())
}
