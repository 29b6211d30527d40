package txlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/txlock/txlock/dialects"
)

// Retry returns a copy whose Do, TryDo, Exec and TryExec run again, up to n times, after an error
// with which nothing is committed, and which another attempt may well not meet:
//
//   - a deadlock: [ErrDeadlock], or the database's own error, which a statement of the work has met
//     and the work has returned;
//   - [ErrLost], when the session was lost before COMMIT was sent.
//
// After an ErrLost that says that the outcome is unknown, or that the work has ended the
// transaction itself, nothing runs again; nor in the work of another Do, which has to run again as
// a whole: a rollback to its savepoint does not take back what it holds. A batch of [Combine] runs
// again with all its orders when its lock has a Retry. Lock and LockTx take no notice of it.
//
// The work must be fit to run twice: what it does outside its transaction, no rollback undoes.
// Between two attempts is a short time, drawn at random, so that those who met do not meet again.
// Within bounds the wait of each attempt, ctx all of them. The error is that of the last attempt. A
// [Tracer] is told of each attempt. n is at least 1.
func (m *Mutex[Tx]) Retry(n int) *Mutex[Tx] {
	again := *m
	again.again = n
	if n < 1 && again.err == nil {
		again.err = fmt.Errorf("Retry(%d): at least 1 more attempt", n)
	}
	return &again
}

// inAttempt is a copy for that attempt.
func (m *Mutex[Tx]) inAttempt(attempt int) *Mutex[Tx] {
	if attempt == m.attempt {
		return m
	}
	again := *m
	again.attempt = attempt
	return &again
}

// retry runs a call, and runs it again as Retry says.
func (m *Mutex[Tx]) retry(ctx context.Context, run func(*Mutex[Tx]) error) error {
	for {
		err := run(m)
		if err == nil || m.again == 0 || m.locker.carriesOpen(ctx) {
			return err
		}
		if !m.mayRunAgain(err) {
			if m.attempt > 0 {
				err = fmt.Errorf("%w (in attempt %d)", err, m.attempt+1)
			}
			return err
		}
		pause := time.NewTimer(jitter(m.attempt))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return joinErrors(err, ctx.Err())
		}
		m = m.inAttempt(m.attempt + 1)
	}
}

// mayRunAgain tells whether another attempt is left after that error, and can do no harm.
func (m *Mutex[Tx]) mayRunAgain(err error) bool {
	var committed dialects.MaybeCommittedError
	switch {
	case m.attempt >= m.again, errors.As(err, &committed):
		return false
	case errors.Is(err, ErrClosed), errors.Is(err, dialects.ErrClaimEnded):
		return false // the next attempt would meet it again
	}
	return errors.Is(err, ErrDeadlock) || errors.Is(err, ErrLost) || m.locker.driver.IsDeadlock(err)
}

// jitter is a random time, which is longer after each attempt, up to 160 ms.
func jitter(attempt int) time.Duration {
	return rand.N(5 * time.Millisecond << min(attempt, 5))
}
