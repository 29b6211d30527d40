// Package savepoint ends a savepoint as the work behind it ended.
package savepoint

import "strconv"

// Stack is the savepoints of a session, one for each nested Do. It is for whoever may send.
type Stack struct {
	open  int
	stuck error
}

// Name names the next savepoint. Names are few, so that client libraries may prepare the statements
// that have them.
func (s *Stack) Name() string { return "txlock_" + strconv.Itoa(s.open+1) }

// Run runs work, and then calls end: with undo when work failed or panicked. It returns the error
// of end, or else that of work.
func (s *Stack) Run(work func() error, end func(undo bool) error) error {
	done := false
	s.open++
	defer func() {
		if !done {
			s.note(end(true))
		}
		s.open--
	}()
	err := work()
	done = true
	if ended := end(err != nil); ended != nil {
		s.note(ended)
		return ended
	}
	return err
}

func (s *Stack) note(err error) {
	if err != nil {
		s.stuck = err
	}
}

// Err is why a savepoint could not be ended, or nil. Then nobody can say what is left of the work
// behind it, which has failed, and the transaction must not be committed.
func (s *Stack) Err() error { return s.stuck }
