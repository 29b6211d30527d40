package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/txlock/txlock"
)

// looker is the library as the parent asks it, while nobody works.
type looker interface {
	subject
	install(ctx context.Context) error
	// free checks that all keys and permits can be had, and that nobody leads.
	free(ctx context.Context) error
	// markers reads which works are marked, and sweeps all markers away, for the next epoch.
	markers(ctx context.Context, operations []*operation) (map[int64]bool, error)
}

func (l *library[Tx]) install(ctx context.Context) error { return l.locks.Install(ctx) }

func (l *library[Tx]) free(ctx context.Context) error {
	names := make([]string, 0, mutexes)
	for key := range mutexes {
		names = append(names, keyName(key))
	}
	lock, err := l.locks.Mutex(names...).TryLock(ctx)
	if err == nil {
		err = lock.Unlock(ctx)
	} else {
		err = fmt.Errorf("nobody works, and yet a key is not free: %w", err)
	}
	for key := mutexes; key < mutexes+elections; key++ {
		leader, asked := l.locks.Election(electionName(key), "parent").Leader(ctx)
		if !errors.Is(asked, txlock.ErrNoLeader) {
			err = errors.Join(err, fmt.Errorf("nobody leads, and yet Leader says %+v, %w", leader, asked))
		}
	}
	if l.plan.Galera { // which has no semaphores
		return err
	}
	for semaphore := range semaphores {
		err = errors.Join(err, l.freePermits(ctx, semaphore))
	}
	return err
}

// freePermits checks that all permits of a semaphore can be had, and no more.
func (l *library[Tx]) freePermits(ctx context.Context, semaphore int) (err error) {
	var held []*txlock.Lock
	for range permits + 1 {
		lock, missed := l.locks.Semaphore(semaphoreName(semaphore), permits).TryLock(ctx)
		if missed == nil {
			held = append(held, lock)
		} else if !errors.Is(missed, txlock.ErrNotAcquired) {
			err = errors.Join(err, missed)
		}
	}
	if len(held) != permits {
		err = errors.Join(err, fmt.Errorf("nobody works, and yet a semaphore has %d permits", len(held)))
	}
	for _, lock := range held {
		err = errors.Join(err, lock.Unlock(ctx))
	}
	return err
}

func (l *library[Tx]) markers(ctx context.Context, operations []*operation) (map[int64]bool, error) {
	all, marked := map[int64]bool{}, int64(0)
	for _, o := range operations {
		if _, known := all[o.Work]; known || !o.Verb.once() {
			continue
		}
		_, is, err := l.locks.Once(workName(o.Work)).Done(ctx)
		if err != nil {
			return nil, err
		}
		if all[o.Work] = is; is {
			marked++
		}
	}
	swept, err := l.locks.Sweep(ctx, 0)
	if err == nil && (swept < marked || swept > marked+claims) { // it sweeps ended claims as well
		err = fmt.Errorf("%d works of the epoch are marked, and Sweep has found %d markers and claims", marked, swept)
	}
	return all, err
}
