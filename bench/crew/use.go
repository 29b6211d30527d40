package crew

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock/bench/contest"
)

// use opens a client, reports that the worker is ready, and lets callers use the client from Go to
// Stop.
func (w *worker) use(entrant Entrant, callers func(ctx context.Context, client contest.Client)) (err error) {
	client, err := entrant.open(context.Background())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	if err := rehearse(client, entrant.Environment.Contenders); err != nil {
		return err
	}
	if err := w.begin(); err != nil {
		return err
	}
	ctx, wait := w.untilStopped()
	callers(ctx, client)
	return wait()
}

// rehearse locks a key for each caller of the client at once. Pools then have their connections
// open and their statements prepared before anything is measured.
func rehearse(client contest.Client, callers int) error {
	for range 3 {
		var group errgroup.Group
		for i := range callers {
			keys := []string{fmt.Sprintf("rehearsal %d of %d", i, os.Getpid())}
			group.Go(func() error {
				return client.Hold(context.Background(), keys, func(context.Context, contest.Tx) error {
					time.Sleep(time.Millisecond) // the other callers hold theirs at the same time
					return nil
				})
			})
		}
		if err := group.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// failures are calls that returned an error. They belong to one goroutine.
type failures struct {
	count int
	last  error
}

// breath is the pause after a failed call. Without it, the failures would become the load.
const breath = 10 * time.Millisecond

func (f *failures) add(ctx context.Context, err error) {
	f.count++
	f.last = err
	Wait(ctx, breath)
}

// note adds failures to a report.
func (m *Message) note(f failures) {
	m.Failed += f.count
	if f.last != nil {
		m.Failure = f.last.Error()
	}
}
