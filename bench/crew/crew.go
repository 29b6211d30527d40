package crew

import (
	"context"
	"errors"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// Crew is a set of workers with the same job. A worker that does not obey is replaced.
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

// Run gives a job to each of the first workers, lets them begin together when all are ready, stops
// them when during returns, and returns their reports.
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

// each returns the first error: the errors of the others say the same.
func (c *Crew) each(members []*Process, do func(i int, p *Process) error) error {
	var group errgroup.Group
	for i, p := range members {
		group.Go(func() error { return do(i, p) })
	}
	return group.Wait()
}

// replace kills workers, some of which may be in the middle of a job, and starts new ones.
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

// Wait waits for d, or until ctx ends.
func Wait(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d):
	case <-ctx.Done():
	}
}
