package txlock

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/txlock/txlock/dialects"
)

// maxLegacy bounds the locks beside one Mutex: the server's table of locks is all sessions'.
const maxLegacy = 32

// Beside returns a copy that also takes locks of another kind, for the time in which some programs
// of a fleet hold those and others hold txlock's: postgres.Advisory, postgres.AdvisoryPair and
// mysql.Named name them. The session takes them first, in an order that is the same everywhere, in
// the same round trip, and gives them back with its rows, on whichever way it ends. So it excludes
// both who holds one of them, and who holds the Mutex without Beside.
//
//   - Within, ctx and a try bound the wait for all of them together. Who waits for one of them has
//     no place in the queue of the rows yet: order is kept in each queue.
//   - In a session that ctx carries, a lock that the session has is not asked for again. One that
//     it has not comes behind the rows that it holds already. PostgreSQL sees a circle of such
//     waits. MySQL and MariaDB do not see one of a name and a row: bound these waits, or take the
//     names with the first lock of the session.
//   - [Mutex.Shared] shares them, too, on PostgreSQL. MySQL and MariaDB cannot share a name, and
//     refuse.
//   - LockTx and TryLockTx take them on PostgreSQL, until the transaction ends. MySQL and MariaDB
//     refuse: a name stays with the session behind the caller's COMMIT, and nobody would give it
//     back.
//   - Inspect and Break know the rows alone. They do not show who waits for a lock beside them.
//   - A Locker's queue is apart for each set of locks beside the same rows.
//
// On a pool of the caller's whose connections take one statement in a query (mysql.New without
// multiStatements) a lock takes a round trip more, and its end another. A Semaphore has no lock
// beside it, and a lock of another database than the Locker's is an error.
func (m *Mutex[Tx]) Beside(locks ...dialects.Legacy) *Mutex[Tx] {
	beside := *m
	var err error
	beside.beside, err = withLegacy(m.beside, locks)
	if _, one := m.target.(*permit[Tx]); one {
		err = errors.New("Beside of a Semaphore: a lock has one holder, and a semaphore several")
	}
	beside.err = cmp.Or(m.err, err)
	return &beside
}

// Beside returns a copy whose candidates also take locks of another kind, for the time in which
// some programs of a fleet choose their leader by one of those: see [Mutex.Beside]. A candidate
// takes them before the seat, and has them as long as it leads.
func (e *Election[Tx]) Beside(locks ...dialects.Legacy) *Election[Tx] {
	beside := *e
	beside.mutex = e.mutex.Beside(locks...)
	return &beside
}

// withLegacy is both lists in the order in which every client takes them. MySQL's names do not know
// case; MariaDB's do.
func withLegacy(before, more []dialects.Legacy) ([]dialects.Legacy, error) {
	all := slices.Concat(before, more)
	slices.SortFunc(all, func(a, b dialects.Legacy) int {
		return cmp.Or(cmp.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)), cmp.Compare(a.Name, b.Name))
	})
	all = slices.CompactFunc(all, func(a, b dialects.Legacy) bool { return a == b })
	switch {
	case len(more) == 0:
		return nil, errors.New("Beside names no lock")
	case len(all) > maxLegacy:
		return nil, fmt.Errorf("Beside names %d locks, at most %d are possible", len(all), maxLegacy)
	}
	return all, nil
}

// suits is an error unless the Locker's database has these locks.
func (l *Locker[Tx]) suits(beside []dialects.Legacy) error {
	for _, lock := range beside {
		switch system := l.driver.System(); {
		case lock.Err != nil:
			return fmt.Errorf("Beside: %w", lock.Err)
		case lock.System != system:
			return fmt.Errorf("Beside: %.100q is a lock of %q, and this Locker's database is %q", lock.Name,
				lock.System, system)
		}
	}
	return nil
}

// besideLine tells lines with different locks beside the same rows apart: it has every name in
// full.
func besideLine(locks []dialects.Legacy) string {
	var all strings.Builder
	for _, lock := range locks {
		fmt.Fprintf(&all, "%q", lock.Name)
	}
	return all.String()
}

// besides is what errors say of locks beside rows.
func besides(locks []dialects.Legacy) string {
	if len(locks) == 0 {
		return ""
	}
	names := make([]string, len(locks))
	for i, lock := range locks {
		names[i] = lock.Name
	}
	return " beside " + nameOf(names)
}
