package crew

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Crew is several workers with the same job. One that does not obey is replaced.
type Crew struct {
	workers []*Process
}

// New starts a crew.
func New(size int) (*Crew, error) {
	c := &Crew{}
	for range size {
		p, err := Start()
		if err != nil {
			c.Close()
			return nil, err
		}
		c.workers = append(c.workers, p)
	}
	return c, nil
}

// Run gives a job to each of the first workers, has them begin together when all are ready, tells
// them to stop when during returns, and returns what they report.
func (c *Crew) Run(ctx context.Context, jobs []Job, during func()) ([]Message, error) {
	members := c.workers[:len(jobs)]
	reports := make([]Message, len(jobs))
	err := c.each(members, func(i int, p *Process) error { return p.Give(ctx, jobs[i]) })
	if err == nil {
		err = c.each(members, func(_ int, p *Process) error { return p.Tell(Go) })
	}
	if err == nil {
		during()
		err = c.each(members, func(_ int, p *Process) error { return p.Tell(Stop) })
	}
	if err == nil {
		err = c.each(members, func(i int, p *Process) (err error) {
			reports[i], err = p.Await(ctx, Done, patience)
			return err
		})
	}
	if err != nil {
		return nil, errors.Join(err, c.replace(members))
	}
	return reports, nil
}

func (c *Crew) each(members []*Process, do func(i int, p *Process) error) error {
	failed := make([]error, len(members))
	var group sync.WaitGroup
	for i, p := range members {
		group.Go(func() { failed[i] = do(i, p) })
	}
	group.Wait()
	for _, err := range failed {
		if err != nil {
			return err // those of the others say the same
		}
	}
	return nil
}

// AwaitAll waits until the first n workers have said something, or a time is over, and returns how
// long it took.
func (c *Crew) AwaitAll(ctx context.Context, n int, event Event, atMost time.Duration) time.Duration {
	began := time.Now()
	_ = c.each(c.workers[:n], func(_ int, p *Process) error {
		_, err := p.Await(ctx, event, atMost) // what it failed by shows when it is told to stop
		return err
	})
	return time.Since(began)
}

// replace kills workers of which some are in the middle of something, and starts others.
func (c *Crew) replace(members []*Process) error {
	for i, p := range members {
		p.Kill()
		fresh, err := Start()
		if err != nil {
			return err
		}
		c.workers[i] = fresh
	}
	return nil
}

// Close ends all workers.
func (c *Crew) Close() {
	var group sync.WaitGroup
	for _, p := range c.workers {
		group.Go(p.Close)
	}
	group.Wait()
}

// Wait waits for a time, or until ctx ends.
func Wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
