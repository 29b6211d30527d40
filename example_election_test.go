package txlock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/txlock/txlock"
)

// One of several replicas leads. What it writes to another system carries its term, so that a
// former leader that was stopped, and goes on, does no harm there.
func ExampleElection_Lead() {
	ctx := context.Background()
	locks := open(ctx)
	defer locks.Close()
	var s store
	var former int64

	election := locks.Election("scheduler", "replica-7")
	lead := func(work func(ctx context.Context, term int64) error) {
		if err := election.Lead(ctx, work); err != nil {
			log.Fatal(err)
		}
	}
	lead(func(ctx context.Context, term int64) error {
		leader, err := election.Leader(ctx)
		fmt.Println(leader.Identity, leader.Term == term, err)
		former = term
		return s.write(term, "first")
	})
	lead(func(ctx context.Context, term int64) error {
		if err := s.write(term, "second"); err != nil {
			return err
		}
		fmt.Println(s.write(former, "late"))
		return nil
	})
	_, err := election.Leader(ctx)
	fmt.Println(errors.Is(err, txlock.ErrNoLeader))
	// Output:
	// replica-7 true <nil>
	// refused: a later holder has been here
	// true
}
