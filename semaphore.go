package txlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// maxPermits bounds a semaphore. Each of its permits has a row, and a call names them all.
const maxPermits = 1000

// semaphoreColumn stands where locks of rows have the name of a column.
const semaphoreColumn = "semaphore"

// Semaphore names a semaphore: a lock that n sessions may hold at once, in whichever process. Each
// takes one of the permits 0 to n-1, which [Lock.Permit] tells. A permit is free again when its
// holder releases it or dies, like any lock. The key is any text of at least one byte; it is no key
// of [Locker.Mutex]. n is from 1 to 1000. A bad key or n is an error from the call that locks.
// Semaphore sends nothing.
//
// Clients that disagree on n keep to their own: who says 3 takes one of the permits 0 to 2. So n
// can be changed while programs run. Whoever says 3 and is first in the queue keeps others waiting,
// also if a later permit is free.
//
// The database keeps a row for each permit that was ever named, and the Locker their numbers. So
// take few keys: "supplier", not one for each user.
//
// Waiters of all processes are served in order, as those of a lock are. One session at a time looks
// for a permit, and finds a free one within some 25 ms, or two round trips more on MySQL and
// MariaDB. The others wait asleep, one of each process at the server, and the rest of the callers
// in the process, without a connection, whatever [WithQueue] says.
//
// Of many tries at the same moment some may miss although permits are free, since a try, too, looks
// as the first of the queue: of 32 some 7 % on MySQL and MariaDB. On PostgreSQL none was seen to.
//
// All six verbs work. The same semaphore again in one session is the same permit. But LockTx on
// MySQL and MariaDB may take a second one in the same transaction.
//
// No database sees a deadlock in which a wait for a permit takes part, since it is a wait for any
// of them: bound it by [Mutex.Within]. Shared of a semaphore is an error.
func (l *Locker[Tx]) Semaphore(key string, n int) *Mutex[Tx] {
	m := &Mutex[Tx]{locker: l, target: &permit[Tx]{l, key, n}}
	switch {
	case key == "":
		m.err = errors.New("the key of the semaphore is empty")
	case n < 1 || n > maxPermits:
		m.err = fmt.Errorf("Semaphore of %d permits: the number must be from 1 to %d", n, maxPermits)
	}
	return m
}

// permit is one of the first n permits of a semaphore.
type permit[Tx any] struct {
	locker *Locker[Tx]
	key    string
	n      int
}

func (p *permit[Tx]) String() string {
	return fmt.Sprintf("%s (%d permits)", nameOf([]string{p.key}), p.n)
}

func (p *permit[Tx]) call() Call { return Call{Column: semaphoreColumn, Names: []string{p.key}} }

func (p *permit[Tx]) request(ctx context.Context, connected bool) (dialects.Request, error) {
	l := p.locker
	rows, err := l.rowsOf(ctx, connected, l.config.named(dialects.KindSemaphore, p.key), p.n)
	if err != nil {
		return dialects.Request{}, err
	}
	return rows.Permit(l.config.shownName(p.key), p.n), nil
}

func (p *permit[Tx]) invalidate(err error) (retry bool) {
	p.locker.invalidate(err)
	return err != nil && p.locker.forgetRows(dialects.KindSemaphore, label.Hash(p.key), err) && errors.Is(err, ErrNoRow)
}

// queueAndBegin lets one caller of each semaphore go on at the server at a time. It leaves its
// place to the next when it has a permit. A try passes by when nobody waits: several at once may
// each get a permit.
func (p *permit[Tx]) queueAndBegin(ctx, wait context.Context, of fmt.Stringer, request dialects.Request) (g grant[Tx],
	err error,
) {
	name := lineOf(p.locker.config.table, semaphoreColumn, request.Values...)
	var first *place
	switch {
	case !request.Try:
		first, err = p.locker.awaitPlace(ctx, wait, p.locker.candidates, name, false)
	case p.locker.candidates.Waiting(name) > 0:
		err = fmt.Errorf("%w: other callers of this process wait for it", ErrNotAcquired)
	}
	if err != nil {
		return g, err
	}
	g, err = p.locker.begin(ctx, wait, of, request, first)
	first.Leave()
	return g, err
}
