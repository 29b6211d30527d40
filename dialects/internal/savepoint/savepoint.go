// Package savepoint ends a savepoint as the work behind it ended.
package savepoint

import (
	"cmp"
	"errors"
	"strconv"
)

// Stack is the savepoints of a session, one for each nested Do. It is for whoever may send.
type Stack struct {
	open int

	// Stuck is why a savepoint could not be ended, or nil. Then nobody can say what is left of the
	// work behind it, which has failed, and the transaction must not be committed.
	Stuck error
}

// Name names the next savepoint. Names are few: client libraries may prepare what has them.
func (s *Stack) Name() string { return "txlock_" + strconv.Itoa(s.open+1) }

// Run runs work, and then end: with undo when work failed or panicked. Its error goes first.
func (s *Stack) Run(work func() error, end func(undo bool) error) (err error) {
	panicked, stuck := true, s.Stuck
	s.open++
	defer func() {
		s.open--
		s.Stuck = errPanicked // unless end returns
		ended := end(panicked || err != nil)
		s.Stuck, err = cmp.Or(ended, stuck), cmp.Or(ended, err)
	}()
	err = work()
	panicked = false
	return err
}

var errPanicked = errors.New("the client library panicked at the end of a savepoint")
