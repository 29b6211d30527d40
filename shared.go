package txlock

import "errors"

// Shared returns a copy that shares: any number of sessions hold it at the same time, while no
// session holds the same rows without Shared. It is for readers beside writers. All verbs work with
// it, several keys, and [Locker.Rows]. The work of a Do may write elsewhere, and commits as ever.
//
// Both kinds wait in one queue of the server, first come, first served: a shared call that comes
// behind a waiting exclusive one waits, and a shared try misses then. On MySQL the readers that
// came while a writer held the row all come in together after it, also past a writer that waits,
// who is next. On PostgreSQL shared Rows, and keys beyond the 32nd, may keep a writer waiting as
// long as readers overlap.
//
// Callers of Shared do not wait in the process: [WithQueue] does not count them, and each takes a
// connection of the pool while it waits and holds. [WithHandOff] does not hand them anything.
//
// A session that holds a row alone may share it as well: that sends nothing where the session is
// known to hold it. A session that shares a row cannot have it alone: that is [ErrUpgrade]. Keys
// whose slots collide count as one key here. [Mutex.LockTx] does not know what its caller's
// transaction has locked: there the request waits until the others that share the row are gone, and
// of two transactions that do so at once, one gets [ErrDeadlock].
//
// A fencing token of a shared lock is compared with tokens of exclusive ones only.
//
// On PostgreSQL a shared lock of up to 32 keys writes nothing and holds back neither vacuum nor
// CREATE INDEX CONCURRENTLY, but for a token, whose Lock is renewed. Shared Rows, and more than 32
// keys, write to each row. An exclusive lock of more than 32 keys excludes every shared lock of the
// lock table, whatever its keys: two sessions that hold one and ask for the other meet in a
// deadlock. A standby, and on MySQL and MariaDB a server that is read_only,
// would grant shared locks that exclude nobody elsewhere. There a call is an error that matches
// [ErrUnsafeEngine].
func (m *Mutex[Tx]) Shared() *Mutex[Tx] {
	sharing := *m
	sharing.shared = true
	if sharing.target.permits > 0 && sharing.err == nil {
		sharing.err = errors.New("Shared of a Semaphore: a permit has one holder; name more permits")
	}
	return &sharing
}
