package txlock

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/queue"
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
// in the process, without a connection, whatever [WithQueue] says. [WithHandOff] does not hand
// permits over.
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
	m := &Mutex[Tx]{
		locker: l, name: fmt.Sprintf("%s (%d permits)", nameOf([]string{key}), n),
		target: target{keys: []string{key}, column: semaphoreColumn, permits: n},
	}
	switch {
	case key == "":
		m.err = errors.New("the key of the semaphore is empty")
	case n < 1 || n > maxPermits:
		m.err = fmt.Errorf("Semaphore of %d permits: the number must be from 1 to %d", n, maxPermits)
	}
	return m
}

// permitRequest is what the driver is asked for. The rows of a semaphore are looked up once, which
// takes a connection for a moment: see find.
func (m *Mutex[Tx]) permitRequest(ctx context.Context, try, holding bool) (dialects.Request, error) {
	l, key, n := m.locker, m.target.keys[0], m.target.permits
	name := l.config.named(key)
	known, ok := l.permits.Load(name.Hash)
	if !ok || len(known.(dialects.Permits).Rows) < n {
		if holding {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, lookUpLimit)
			defer cancel()
		}
		found, err := l.permitsOf(ctx, name, n)
		if err != nil {
			if holding && errors.Is(err, context.DeadlineExceeded) {
				err = fmt.Errorf("the permits were not looked up yet, and the caller's transaction keeps the pool "+
					"from it (take one at start): %w", err)
			}
			return dialects.Request{}, err
		}
		l.permits.Store(name.Hash, found)
		known = found
	}
	request := known.(dialects.Permits).Request(l.config.shownName(key), n)
	request.Try = try
	return request, nil
}

func (l *Locker[Tx]) permitsOf(ctx context.Context, name dialects.Named, n int) (p dialects.Permits, err error) {
	found, err := l.find(ctx, false)
	if err == nil {
		p, err = l.driver.Permits(ctx, found.Name, name, n)
	}
	return p, err
}

// outdated forgets the rows of a semaphore after an error that says that they are others: the table
// was made anew. It tells whether to look them up again.
func (m *Mutex[Tx]) outdated(err error) bool {
	if m.target.permits == 0 || !errors.Is(err, ErrNoRow) && !errors.Is(err, ErrNotInstalled) {
		return false
	}
	_, known := m.locker.permits.LoadAndDelete(hashOf(m.target.keys[0]))
	return known && errors.Is(err, ErrNoRow)
}

// enterForPermit waits in the process, where one caller of each semaphore goes on at the server at
// a time. It leaves its place to the next when it has a permit. A try passes by when nobody waits:
// several at once may each get a permit.
func (m *Mutex[Tx]) enterForPermit(ctx, wait context.Context, request dialects.Request) (g grant[Tx], err error) {
	l := m.locker
	name := line{table: l.config.table, column: semaphoreColumn, values: request.Permit.Semaphore}
	var place *place[Tx]
	if request.Try {
		if l.candidates.Waiting(name) > 0 {
			return g, fmt.Errorf("%w: other callers of this process wait for it", ErrNotAcquired)
		}
	} else {
		entered, err := l.lineUp(ctx, wait, l.candidates, name, queue.Wait{})
		if err != nil {
			return g, err
		}
		place = entered.Place
	}
	g, err = m.begin(ctx, wait, request, place)
	place.Leave()
	return g, err
}

// keyOf undoes asciiKey. Of a long key it is the beginning, and "…".
func keyOf(name string) string {
	name, _, cut := strings.Cut(name, "#")
	var b strings.Builder
	for i := 0; i < len(name); i++ {
		if name[i] != '=' {
			b.WriteByte(name[i])
			continue
		}
		if code, err := strconv.ParseUint(name[i+1:min(i+3, len(name))], 16, 8); err == nil && i+2 < len(name) {
			b.WriteByte(byte(code))
		}
		i += 2
	}
	if cut {
		b.WriteString("…")
	}
	return b.String()
}
