// Package savepoint ends a savepoint as the work behind it ended.
package savepoint

// Run runs work, and then calls end: with undo when work failed or panicked. It returns the error
// of end, or else that of work. After a panic, the error of end is dropped: what is wrong with the
// session shows in its end.
func Run(work func() error, end func(undo bool) error) error {
	done := false
	defer func() {
		if !done {
			_ = end(true)
		}
	}()
	err := work()
	done = true
	if ended := end(err != nil); ended != nil {
		return ended
	}
	return err
}
