// Package txlockotel tells OpenTelemetry of the locks of package txlock: a span for each critical
// section, and metrics of calls, waits and locks.
//
//	locks := txlock.New(driver, txlock.WithTracer(txlockotel.NewTracer()))
//
// Names follow the semantic conventions for databases (version 1.43.0) where they have one; the
// others begin with txlock.
//
// # Metrics
//
//	txlock.requests       counter, {request}          calls whose wait is over, by outcome
//	txlock.wait.duration  histogram, s                from call to grant or failure, by outcome
//	txlock.releases       counter, {lock}             locks that are not held any more, by outcome
//	txlock.hold.duration  histogram, s                from grant to release or commit, by outcome
//	txlock.waiting        up-down counter, {request}  calls that wait now
//	txlock.queued         up-down counter, {request}  those of them that wait in the process
//	txlock.held           up-down counter, {lock}     locks and Dos that are held now
//
// A call that waits in the process has no connection: see [txlock.WithQueue]. The wait is all that
// comes before the grant: for a connection of the pool and for the server's answer, too. A release
// counts when the server has confirmed it, so that for a moment txlock.held may count the next
// holder as well. What LockTx has locked is in the first two and in txlock.waiting only.
//
// Their attributes, which are those of spans as well:
//
//	db.system.name      postgresql or mysql; mysql for MariaDB too, unless you say
//	                    WithAttributes(semconv.DBSystemNameMariaDB)
//	db.operation.name   the call: Lock, TryLock, Do, TryDo, LockTx, TryLockTx; Combine for a batch
//	db.collection.name  the lock table, or that of Rows, as it was spelled
//	txlock.nested       whether the call joined the session that its context carries
//	txlock.kind         shared, semaphore, election, once or claim; not on exclusive locks
//	txlock.outcome      not on the last three; see below
//	error.type          with the outcomes that are errors; see below
//
// A key is never an attribute of a metric: each would be a series of its own.
//
// # Outcomes
//
//	acquired   of a wait: the lock was granted
//	missed     of a try: another session holds the lock, or waits for it
//	released   of a lock: it was unlocked, or the Do committed
//	cancelled  the caller's context was cancelled, in the wait or in a Do
//	timeout    a deadline, Within or a limit of the session ended the wait or a Do; an error
//	deadlock   the call, or something in a Do, was the victim of a deadlock; an error
//	lost       the session is gone; an error
//	error      everything else, also an error or a panic of the work of a Do; an error
//
// # Spans
//
// A span covers a critical section, from the call to the release or the loss, and is named by the
// call and the table ("Do txlock_slots"). It is the parent of what is done with the context of the
// work, or with Lock.Context, nested locks included. Each attempt of Mutex.Retry has a span of its
// own; txlock.attempt says how many were before, unless it is the first. The grant is an event,
// txlock.acquired, with the seconds that the call waited in txlock.waited. The span of a LockTx is
// the wait alone.
//
// The status is Error with the outcomes that are errors, and else unset: a missed try is an answer,
// and who cancels a call does not want it any more. error.type is the name of the error in package
// txlock (txlock.ErrLost, txlock.ErrNotAcquired of a timeout …), else the SQLSTATE where the
// database driver's error has a method that tells it, which is db.response.status_code as well,
// else the type of the error. Messages of errors name the key, and are therefore recorded with
// [WithKeys] only.
package txlockotel
