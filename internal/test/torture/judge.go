package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/txlock/txlock"
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
	if err := t.free(ctx); err != nil {
		violations = append(violations, violation{Rule: ruleRest, Text: err.Error()})
	}
	var err error
	if e.after, err = t.data.read(ctx); err != nil {
		return err
	}
	if err := t.lookAtMarkers(ctx, e); err != nil {
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
	for key := range allKeys(t.Keys) {
		if isSemaphore(t.Keys, key) {
			most, found := e.checkPermits(key, holds[key])
			violations = append(violations, found...)
			t.result.Inside = max(t.result.Inside, most)
		} else {
			violations = append(violations, e.checkMutex(key, holds[key])...)
			violations = append(violations, e.checkDo(key)...)
			violations = append(violations, e.checkClaims(key)...)
			if t.compares() {
				violations = append(violations, e.checkFenced(key)...)
			}
			violations = append(violations, t.tokens.check(key, t.comparable(holds[key]))...)
		}
		most, found := e.checkQueue(key, holds[key])
		if t.Pair != pairGalera { // where nobody keeps an order among nodes
			violations = append(violations, found...)
		}
		t.result.Overtaken = max(t.result.Overtaken, most)
	}
	return violations
}

// free checks that all keys can be locked while nobody holds them, and that nobody leads.
func (t *trial) free(ctx context.Context) error {
	if t.Lock != lockTxlock {
		return nil
	}
	locks, err := t.data.locker(ctx, t.lease)
	if err != nil {
		return err
	}
	names := make([]string, 0, t.Keys)
	for key := range t.Keys {
		names = append(names, keyName(key))
	}
	var lock *txlock.Lock
	if lock, err = locks.tryLock(ctx, names); err == nil {
		err = lock.Unlock(ctx)
	} else {
		err = fmt.Errorf("nobody works, and yet a key is not free: %w", err)
	}
	for key := t.Keys; key < t.Keys+elections; key++ {
		if leader, asked := locks.leader(ctx, electionName(key)); !errors.Is(asked, txlock.ErrNoLeader) {
			err = errors.Join(err, fmt.Errorf("nobody leads, and yet Leader says %+v, %w", leader, asked))
		}
	}
	if t.Pair != pairGalera { // which has none
		err = errors.Join(err, freePermits(ctx, locks))
	}
	return errors.Join(err, locks.Close())
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
