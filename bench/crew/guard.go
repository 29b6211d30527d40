package crew

import (
	"context"

	"github.com/txlock/txlock/bench/contest"
)

// guard adds to a number under a lock, in two steps with a word of the parent in between: what
// happens there is what the faults are about. The work passes its context on to its statements, as
// careful users do, and looks at nothing else.
func (w *worker) guard(job Guard) (report Message, err error) {
	ctx := context.Background()
	client, err := job.Entrant.open(ctx)
	if err != nil {
		return report, err
	}
	defer client.Close()
	desk, err := openDesk(ctx, job.Entrant.Books, 1)
	if err != nil {
		return report, err
	}
	defer desk.close()
	if _, err := desk.read(ctx, nil, job.Account); err != nil { // the connection is there
		return report, err
	}
	if err := w.begin(); err != nil {
		return report, err
	}
	guarded := &Guarded{}
	w.say(Message{Event: Asking})
	transacted, told := false, false
	err = client.Hold(ctx, []string{job.Key}, func(held context.Context, tx contest.Tx) error {
		transacted = tx != nil
		number, err := desk.read(held, tx, job.Account)
		if err != nil {
			return err
		}
		if !told { // else it is done again, as another was faster
			w.say(Message{Event: Inside})
			if err := w.expect(OnIt); err != nil {
				return err
			}
			told = true
		}
		err = desk.write(held, tx, job.Account, number+job.Amount)
		guarded.Written = err == nil
		w.say(Message{Event: Left, Guarded: &Guarded{Written: guarded.Written && !transacted}})
		return err
	})
	if err != nil {
		guarded.Told, guarded.Error = true, err.Error()
		// What was written in the lock's own transaction is not there. Without one, the write
		// stands, whatever is said later.
		guarded.Written = guarded.Written && !transacted
	}
	report.Guarded = guarded
	return report, nil
}
