package crew

import (
	"context"

	"github.com/txlock/txlock/bench/contest"
)

// guard adds to a number under a lock in two steps, reading and writing. Between them it waits for
// an order of the parent: that is when the faults happen. The work passes its context on to its
// statements, as careful users do, and checks nothing else.
func (w *worker) guard(job Guard) (report Message, err error) {
	ctx := context.Background()
	client, err := job.Entrant.open(ctx)
	if err != nil {
		return report, err
	}
	defer client.Close()
	books, err := job.Entrant.Books.Open(ctx, 1)
	if err != nil {
		return report, err
	}
	defer books.Close()
	if err := w.begin(); err != nil {
		return report, err
	}
	guarded := &Guarded{}
	w.say(Message{Event: Asking})
	transacted, told := false, false
	err = client.Hold(ctx, []string{job.Key}, func(held context.Context, tx contest.Tx) error {
		transacted = tx != nil
		number, err := books.Number(held, tx, "SELECT number FROM "+AccountTable+" WHERE name = ?", job.Account)
		if err != nil {
			return err
		}
		if !told { // otherwise another was faster, and this run repeats the work
			w.say(Message{Event: Inside})
			if err := w.expect(OnIt); err != nil {
				return err
			}
			told = true
		}
		_, err = books.Exec(held, tx, "UPDATE "+AccountTable+" SET number = ? WHERE name = ?", number+job.Amount,
			job.Account)
		guarded.Written = err == nil
		w.say(Message{Event: Left, Guarded: &Guarded{Written: guarded.Written && !transacted}})
		return err
	})
	if err != nil {
		guarded.Told = true
		// A write in the lock's own transaction was rolled back. A write of its own transaction
		// stands, whatever is reported later.
		guarded.Written = guarded.Written && !transacted
	}
	report.Guarded = guarded
	return report, nil
}
