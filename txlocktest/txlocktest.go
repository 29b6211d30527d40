// Package txlocktest is for tests of programs that use txlock. It makes happen what seldom happens
// by itself: another session holds the lock, callers wait for it, the holder's session is lost, and
// many run a section at the same time. It works on the real database, with every driver.
//
//	release := txlocktest.Hold(t, locks, "sku:42")   // somebody else has the lock
//	go sell(ctx, 42)                                 // the program under test waits
//	txlocktest.Waiters(t, locks, 1, "sku:42")        // now it does
//	release()
//
// A function that cannot do what it is for fails the test, after [Patience] at the latest, and says
// who holds the keys then. The functions may be called from tests that run in parallel. Give the
// keys of each test names of their own.
//
// They look with [txlock.Locker.Inspect], so the user of the database needs what that needs.
package txlocktest

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/holdings"
)

// Patience is how long a function waits for what it is for, unless [Within] says otherwise.
const Patience = 10 * time.Second

// Within returns t for functions that are to wait for at most d, and not for [Patience].
func Within(t testing.TB, d time.Duration) testing.TB { return patient{t, d} }

type patient struct {
	testing.TB
	patience time.Duration
}

func patienceOf(t testing.TB) time.Duration {
	if p, ok := t.(patient); ok {
		return p.patience
	}
	return Patience
}

// pause is how long a function waits before it looks again.
const pause = 5 * time.Millisecond

// Hold locks keys, as another owner, with a session of its own from the pool of locks. They are
// held until release is called, or the test ends. When it returns they are held. Release returns
// when the server has them back, and a second call does nothing. A hold that was lost, by [Lose]
// say, is no failure.
func Hold[Tx any](t testing.TB, locks *txlock.Locker[Tx], keys ...string) (release func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patienceOf(t))
	defer cancel()
	lock, err := locks.Mutex(keys...).Lock(ctx)
	if err != nil {
		t.Fatalf("txlocktest: Hold: %v%s", err, seen(locks, keys))
	}
	var once sync.Once
	release = func() {
		once.Do(func() {
			if err := lock.Unlock(context.Background()); err != nil && !errors.Is(err, txlock.ErrLost) {
				t.Errorf("txlocktest: release: %v", err)
			}
		})
	}
	t.Cleanup(release)
	return release
}

// Waiters returns when at least n sessions wait for one of keys at the server, or campaign in an
// election of that name, of whichever process. It asks the server again and again, and does not
// guess by time. Of the callers of one key in a process, some wait there without a session: for
// more than one of them give their Locker [txlock.WithQueue] of n+1, and a pool with as much room.
func Waiters[Tx any](t testing.TB, locks *txlock.Locker[Tx], n int, keys ...string) {
	t.Helper()
	waiting := 0
	err := until(patienceOf(t), func(ctx context.Context) (done bool, err error) {
		found, err := locks.Inspect(ctx, keys...)
		if err == nil {
			waiting = waitersIn(found)
		}
		return waiting >= n, err
	})
	if err != nil {
		t.Fatalf("txlocktest: %d sessions wait at the server for %q, not %d (WithQueue bounds those of a "+
			"process): %v%s", waiting, keys, n, err, seen(locks, keys))
	}
}

func waitersIn(found []txlock.Holding) int {
	sessions := map[string]bool{} // of several keys, one is waited for first
	for _, h := range found {
		for _, waiter := range h.Waiters {
			sessions[waiter.ID] = true
		}
	}
	return len(sessions)
}

// Lose ends the sessions that hold keys at the server: alone, by Shared, by a permit, or as leader
// of an election of that name. So does an administrator, a failover, or a connection that is cut.
// When it returns, their transactions are rolled back, and others may have the locks. The programs
// that held them learn of it as of any other loss. It waits until somebody holds one of keys. On
// MariaDB sessions that share may stay unknown, and then none is ended.
func Lose[Tx any](t testing.TB, locks *txlock.Locker[Tx], keys ...string) {
	t.Helper()
	err := until(patienceOf(t), func(ctx context.Context) (done bool, err error) {
		found, err := locks.Inspect(ctx, keys...)
		if err != nil {
			return false, err
		}
		for _, h := range found {
			for _, holder := range holdings.Holders(h) {
				if holder.ID == "" { // on MariaDB it may be known at the next look
					continue
				}
				h.Holder = &holder
				switch err := locks.Break(ctx, h); {
				case err == nil:
					done = true
				case !errors.Is(err, txlock.ErrNotHeld): // else it was released just now
					return false, err
				}
			}
		}
		return done, nil
	})
	if err != nil {
		t.Fatalf("txlocktest: nobody who holds %q could be ended: %v%s", keys, err, seen(locks, keys))
	}
}

// Overlap runs section n times at the same time, and fails the test when two are inside together, a
// section returns an error, or one has not returned after [Patience]: its ctx ends then. Section
// calls enter when it has the lock, and the function that enter returns before it gives the lock
// back. Enter waits for a moment, so that others may come in.
//
// Give the program a pool of one connection for it. A section that takes a second connection while
// it holds the lock then waits for itself, and the test fails. In production that happens when the
// pool is used up, and to all at once.
func Overlap(t testing.TB, n int, section func(ctx context.Context, enter func() (leave func())) error) {
	t.Helper()
	patience := patienceOf(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var mu sync.Mutex
	inside, together, entered := 0, 0, 0
	enter := func() (leave func()) {
		mu.Lock()
		inside++
		entered++
		together = max(together, inside)
		mu.Unlock()
		time.Sleep(linger)
		var once sync.Once
		return func() {
			once.Do(func() {
				mu.Lock()
				inside--
				mu.Unlock()
			})
		}
	}
	returned := make(chan error, n)
	for range n {
		go func() {
			err := errGoexit
			defer func() { returned <- err }()
			err = section(ctx, enter)
		}()
	}
	var failed []error
	left := n
	for grace := ctx.Done(); left > 0; {
		select {
		case err := <-returned:
			left--
			if err != nil {
				failed = append(failed, err)
			}
			continue
		case <-grace:
			grace = nil // they learn of it now
			continue
		case <-time.After(patience + releaseTime):
		}
		break
	}
	mu.Lock()
	defer mu.Unlock()
	switch {
	case together > 1:
		t.Errorf("txlocktest: %d of %d sections were inside together", together, n)
	case entered == 0 && failed == nil && left == 0:
		t.Errorf("txlocktest: no section has called enter")
	}
	if left > 0 {
		t.Errorf("txlocktest: %d of %d sections have not returned, although their context has ended", left, n)
	}
	if failed != nil {
		t.Errorf("txlocktest: %d of %d sections failed:\n%v", len(failed), n, errors.Join(failed...))
	}
}

const (
	linger      = 2 * time.Millisecond
	releaseTime = 6 * time.Second // what a Do takes at most to end when its context has
)

var errGoexit = errors.New("the section panicked, or called runtime.Goexit")

// until calls look until it is done, for patience at most. An error of look does not end it: the
// server may just have been started.
func until(patience time.Duration, look func(ctx context.Context) (done bool, err error)) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var last error
	for {
		done, err := look(ctx)
		if err == nil && done {
			return nil
		}
		if ctx.Err() == nil { // else look has failed for that alone
			last = err
		}
		select {
		case <-ctx.Done():
			return errors.Join(fmt.Errorf("waited %v", patience), last)
		case <-time.After(pause):
		}
	}
}

// seen says who holds keys and who waits, for the message of a failure.
func seen[Tx any](locks *txlock.Locker[Tx], keys []string) string {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	found, err := locks.Inspect(ctx, keys...)
	if err != nil {
		return fmt.Sprintf("\nInspect: %v", err)
	}
	var b strings.Builder
	for _, h := range found {
		fmt.Fprintf(&b, "\n%q: ", h.Key)
		for _, holder := range holdings.Holders(h) {
			fmt.Fprintf(&b, "held by session %s of %s %d for %v, ", holder.ID, holder.Application, holder.Process,
				holder.For.Round(time.Millisecond))
		}
		fmt.Fprintf(&b, "%d wait at the server", len(h.Waiters))
	}
	if b.Len() == 0 {
		return "\nnobody holds any of them or waits for one"
	}
	return b.String()
}

// Expire ends the claim on key as if its time were over: the next call of its holder is
// [txlock.ErrClaimEnded], and who waits for it may have it. It fails the test when nobody has the
// claim.
func Expire[Tx any](t testing.TB, locks *txlock.Locker[Tx], key string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patienceOf(t))
	defer cancel()
	found, err := locks.Inspect(ctx, key)
	for _, h := range found {
		if h.Holder != nil && h.Holder.By != "" {
			err = locks.Break(ctx, h)
			if err == nil {
				return
			}
		}
	}
	if err == nil {
		err = errors.New("nobody has it")
	}
	t.Fatalf("txlocktest: the claim %q could not be ended: %v", key, err)
}
