package interrupt_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects/internal/interrupt"
)

// server is one statement that waits, and what was done to it.
type server struct {
	ended      chan error
	interrupts int
	cut        bool
	ends       int // the interrupt that the statement heeds; 0: none
	err        error
}

func (s *server) interrupt(context.Context) error {
	if s.interrupts++; s.interrupts == s.ends {
		s.ended <- errInterrupted
	}
	return s.err
}

var errInterrupted, errCut = errors.New("interrupted"), errors.New("connection closed")

func (s *server) await(ctx context.Context, told bool, within time.Duration) error {
	s.ended = make(chan error, 2)
	cut := func() {
		s.cut = true
		s.ended <- errCut
	}
	return interrupt.Await(ctx, told, within, s.interrupt, cut, func(running context.Context) error {
		select {
		case err := <-s.ended:
			return err
		case <-running.Done():
			return running.Err()
		}
	})
}

// The wait ends with an interrupt, which is repeated; with a cut when none helps, or none can be
// sent; and by the server's own limit, which has its time.
func TestAwait(t *testing.T) {
	for name, c := range map[string]struct {
		server     server
		told       bool
		interrupts int
		took       time.Duration
		err        error
	}{
		"the second interrupt":  {server{ends: 2}, false, 2, 30 * time.Millisecond, errInterrupted},
		"none helps":            {server{}, false, 67, 2 * time.Second, errCut},
		"no way to the server":  {server{err: interrupt.ErrNoConnection}, false, 1, 30 * time.Millisecond, errCut},
		"a server that is late": {server{ends: 1}, true, 1, 20 * time.Millisecond, errInterrupted},
		"a server that has time": {
			server{ends: 9, err: interrupt.ErrNoConnection}, true, 9, 260 * time.Millisecond, errInterrupted,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				s := c.server
				begun := time.Now()
				require.Equal(t, c.err, s.await(ctx, c.told, interrupt.Patience))
				require.Equal(t, c.err == errCut, s.cut)
				require.InDelta(t, c.interrupts, s.interrupts, 1)
				require.InDelta(t, time.Second+c.took, time.Since(begun), float64(30*time.Millisecond))
			})
		})
	}
}

// A statement that ends by itself is interrupted by nobody afterwards, whenever ctx ends.
func TestNobodyIsHitLate(t *testing.T) {
	for after := range 300 {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
			defer cancel()
			var s server
			over := false
			err := interrupt.Await(ctx, after%2 == 0, 100*time.Millisecond, func(ctx context.Context) error {
				require.False(t, over)
				time.Sleep(time.Millisecond)
				return s.interrupt(ctx)
			}, func() { require.False(t, over) }, func(context.Context) error {
				time.Sleep(time.Duration(after) * time.Millisecond)
				return nil
			})
			over = true
			require.NoError(t, err)
			time.Sleep(time.Second)
		})
	}
}
