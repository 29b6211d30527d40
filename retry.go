package txlock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/txlock/txlock/dialects"
)

// Retry returns a copy whose Do, TryDo, Exec and TryExec run again, up to n times, at least 1,
// after an error with which nothing is committed and which another attempt may not meet: a
// deadlock, and the [ErrLost] of a Do before COMMIT was sent. Any error in the work of another Do
// is final: that has to run again as a whole. The work must be fit to run twice, and must not end
// its transaction. Within bounds the wait of each attempt, ctx all, with short random times
// between. The error is that of the last, and a [Tracer] is told of each.
func (m *Mutex[Tx]) Retry(n int) *Mutex[Tx] {
	again := *m
	again.retries = n
	if n < 1 && again.err == nil {
		again.err = fmt.Errorf("Retry(%d): at least 1 more attempt", n)
	}
	return &again
}

// retry runs a call again as Retry says.
func (m *Mutex[Tx]) retry(ctx context.Context, run func(*Mutex[Tx]) error) error {
	for n := 0; ; n++ {
		attempt := *m
		attempt.target.call.Attempt = n
		err := run(&attempt)
		if n == m.retries || !m.mayRunAgain(err) {
			if err != nil && n > 0 {
				err = fmt.Errorf("%w (in attempt %d)", err, n+1)
			}
			return err
		}
		select {
		case <-time.After(rand.N(5 * time.Millisecond << min(n, 5))): // up to 160 ms
		case <-ctx.Done():
		}
		if ended := ctx.Err(); ended != nil {
			return joinErrors(err, ended)
		}
	}
}

// mayRunAgain tells whether another attempt can do no harm after that error, and may not meet it.
func (m *Mutex[Tx]) mayRunAgain(err error) bool {
	var sent finalError
	if err == nil || m.ready() != nil || errors.As(err, &sent) || errors.Is(err, ErrClaimEnded) {
		return false
	}
	return errors.Is(err, ErrDeadlock) || errors.Is(err, ErrLost) || m.locker.driver.Classify(err) == dialects.Deadlock
}

// finalError is an ErrLost of a call that has sent COMMIT, or may have: something may be committed.
type finalError struct{ error }

func (e finalError) Unwrap() error { return e.error }

// final marks the error of a call that sends COMMIT, if it is an ErrLost.
func final(err error) error {
	if errors.Is(err, ErrLost) {
		return finalError{err}
	}
	return err
}
