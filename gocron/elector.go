package txlockgocron

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/txlock/txlock"
)

var _ gocron.Elector = (*Elector)(nil)

// Elector is a gocron.Elector: all jobs of a program's schedulers run on one instance, the leader.
//
//	elector, err := txlockgocron.NewElector(locks.Election("jobs", hostname))
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(elector))
//
// It takes one connection, whatever the number of jobs, and another for a moment when a term
// begins. No tick runs twice because instances fire apart: the others never run it. A tick in which
// nobody leads is left out: from the death of a leader, or the end of its lease when it is silent,
// until its successor leads. Where each tick counts, and jobs should spread over the instances, use
// a [Locker].
type Elector struct {
	config config
	cancel context.CancelFunc
	ended  chan struct{} // closed when it campaigns no more

	mu   sync.Mutex
	term context.Context // that runs; nil: none does
	now  int64           // its number
	err  error           // of the last campaign, if it has failed
}

// NewElector returns an Elector that campaigns in election from now until Close. Of the options
// only [WithLogger] makes sense: it tells why this instance cannot campaign. The caller still owns
// the txlock.Locker of election: close the scheduler first, then the Elector, then that.
func NewElector[Tx any](election *txlock.Election[Tx], options ...Option) (*Elector, error) {
	c, err := newConfig(options)
	switch {
	case err == nil && election == nil:
		err = errors.New("nil election")
	case err == nil && (c.prefix != "" || c.atLeast != defaultAtLeast || len(c.periods) > 0):
		err = errors.New("an Elector takes WithLogger alone")
	}
	if err != nil {
		return nil, fmt.Errorf("txlockgocron: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Elector{config: c, cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(e.ended)
		e.campaign(ctx, func() error { return election.Lead(ctx, e.lead) })
	}()
	return e, nil
}

// IsLeader returns nil while this instance leads. gocron calls it for each tick. It asks nobody: an
// instance that was stopped for longer than its lease, and goes on, may believe for a moment that
// it leads. The jobs can tell by [Elector.Context], and other systems by [Elector.Term].
func (e *Elector) IsLeader(context.Context) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term != nil && e.term.Err() == nil {
		return nil
	}
	if e.err != nil {
		return fmt.Errorf("txlockgocron: this instance cannot lead: %w", e.err)
	}
	return fmt.Errorf("txlockgocron: this instance does not lead: %w", txlock.ErrNotHeld)
}

// Term is the number of the present term, or 0 when this instance does not lead. Terms increase
// strictly over all instances. Send it with what a job writes to another system, and have that
// refuse a smaller one than it has seen.
func (e *Elector) Term() int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil || e.term.Err() != nil {
		return 0
	}
	return e.now
}

// Context returns a copy of ctx that ends with the present term, with cause [txlock.ErrLost] when
// it is lost. Call it in a job, with the context that gocron gives it. If this instance does not
// lead, the context has ended with cause [txlock.ErrNotHeld].
func (e *Elector) Context(ctx context.Context) context.Context {
	ctx, cancel := context.WithCancelCause(ctx)
	e.mu.Lock()
	term := e.term
	e.mu.Unlock()
	if term == nil {
		cancel(fmt.Errorf("txlockgocron: this instance does not lead: %w", txlock.ErrNotHeld))
		return ctx
	}
	stop := context.AfterFunc(term, func() { cancel(context.Cause(term)) })
	context.AfterFunc(ctx, func() { stop() }) // a term outlives many jobs
	return ctx
}

// Close resigns, and waits for that. The next instance may lead at once, while jobs still run here:
// close the scheduler first.
func (e *Elector) Close() error {
	e.cancel()
	<-e.ended
	return nil
}

// campaign calls lead until ctx ends. It should not return before that: what it says may be put
// right while the program runs.
func (e *Elector) campaign(ctx context.Context, lead func() error) {
	const pause = 5 * time.Second
	for ctx.Err() == nil {
		e.mu.Lock()
		e.err = nil
		e.mu.Unlock()
		err := lead()
		if ctx.Err() != nil {
			return
		}
		e.mu.Lock()
		e.err = err
		e.mu.Unlock()
		e.config.logger.Warn("txlockgocron: this instance cannot lead, and will try again",
			slog.Duration("pause", pause), slog.Any("error", err))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// lead is the work of a term.
func (e *Elector) lead(ctx context.Context, term int64) error {
	e.mu.Lock()
	e.term, e.now, e.err = ctx, term, nil
	e.mu.Unlock()
	<-ctx.Done()
	e.mu.Lock()
	e.term = nil
	e.mu.Unlock()
	return context.Cause(ctx)
}
