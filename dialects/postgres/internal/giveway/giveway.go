// Package giveway looks after the statements of a driver that wait for locks, and has them give way
// to who waits for their snapshots.
package giveway

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// A statement that waits for a lock has a snapshot as long as it waits. CREATE INDEX CONCURRENTLY,
// and whatever else waits for old snapshots to end, waits for it; if the holder of the lock runs
// that command, they wait in a circle that the server does not see. And VACUUM keeps all rows that
// were deleted since the snapshot.
//
// So a wait gives way: it leaves the queue and enters it again at the end, with a new snapshot.
// That happens only when somebody waits for a snapshot of such a wait, or when the wait has lasted
// for maxWait. Until then it keeps its place.
//
// Who waits for a snapshot in fact waits for the end of its transaction. A transaction with work,
// of a Do or of the caller's, cannot end for that. There a new snapshot helps those who have not
// begun to wait for it yet.
const (
	// lookEvery is how often waits that are older are looked after. Two of them pass at most until
	// one gives way.
	lookEvery = 2500 * time.Millisecond
	// maxWait is how long one snapshot is kept. With a short lease it is five of them. VACUUM may
	// be twice as far behind: a snapshot is as old as the oldest transaction that it saw running,
	// and that may be one of ours that waits for a second lock.
	maxWait = 150 * time.Second
	// maxCandidacy is that of a candidate for a leader's seat. Candidates wait for days, and their
	// order matters to nobody: so with a leader whose transaction is a minute old, VACUUM is less
	// than two minutes behind.
	maxCandidacy = 45 * time.Second
	leasesToWait = 5
	lookLimit    = 2 * time.Second
)

// Err occurs when a wait has left the queue in order to enter it again.
var Err = errors.New("the wait gave way to somebody who waits for its snapshot")

// maxWaitOf is how long a wait for request keeps one snapshot.
func maxWaitOf(request dialects.Request) time.Duration {
	limit := maxWait
	if request.Ours && request.Slots == 0 && request.Permit == nil {
		limit = maxCandidacy
	}
	if request.Lease > 0 {
		limit = min(limit, leasesToWait*request.Lease)
	}
	return limit
}

// Patience is how long the server lets a nested call wait for one lock: a little longer than until
// the wait gives way. Then it goes on to wait, if somebody is there to say so. Else its session is
// idle, and ends after the lease, with all that it holds.
func Patience(request dialects.Request) time.Duration { return maxWaitOf(request) + 2*lookEvery }

// Wait is a statement that waits for rows.
type Wait struct {
	begun     time.Time
	limit     time.Duration
	interrupt func(context.Context) error
	conn      *pgx.Conn // nil: not known

	mu    sync.Mutex
	over  bool
	asked bool          // to give way
	ended chan struct{} // closed when over; made by giveWay
	quiet chan struct{} // closed when no interrupt is under way; made by giveWay
}

// giveWay interrupts the statement until it ends. It does so once.
func (w *Wait) giveWay() {
	w.mu.Lock()
	if w.over || w.asked {
		w.mu.Unlock()
		return
	}
	w.asked, w.ended, w.quiet = true, make(chan struct{}), make(chan struct{})
	w.mu.Unlock()
	go func() {
		defer close(w.quiet)
		for !interrupt.Repeat(context.Background(), interrupt.Patience, w.interrupt, w.ended, false) {
			select {
			case <-w.ended:
				return
			case <-time.After(lookEvery):
			}
		}
	}()
}

// end returns when no interrupt is under way: a late one would hit the connection's next statement.
// It tells whether the wait was asked to give way.
func (w *Wait) end() (asked bool) {
	w.mu.Lock()
	w.over = true
	asked = w.asked
	w.mu.Unlock()
	if asked {
		close(w.ended)
		<-w.quiet
	}
	return asked
}

// Waits are those of a driver. One timer looks after all of them, so that a wait that is over soon
// costs nothing for it.
type Waits struct {
	// Aside is shared by those that take a connection for a moment, as beside that of a leader's
	// seat. A look at the waits must have it alone: so a process needs two connections, not three.
	Aside sync.RWMutex

	// look asks the server how long somebody has been waiting for the snapshot of one of them, if
	// anybody is. Known is the connection of one, if any is known.
	look func(ctx context.Context, known *pgx.Conn) (since time.Duration, some bool, err error)

	mu      sync.Mutex
	all     map[*Wait]struct{}
	timer   *time.Timer
	looking bool // the timer runs, or a look is under way
}

// New asks on a connection of the pool. When the pool has none to give, it may be the waits that
// have them all: then alone makes a connection as a known one was made. While another statement takes
// one for a moment it does not ask: the next look comes soon.
func New(with client.With, alone func(context.Context, *pgx.Conn, sqltext.Statement) ([]string, error)) *Waits {
	ws := &Waits{all: make(map[*Wait]struct{})}
	ws.look = func(ctx context.Context, known *pgx.Conn) (since time.Duration, some bool, err error) {
		if !ws.Aside.TryLock() {
			return 0, false, nil
		}
		defer ws.Aside.Unlock()
		brief, cancel := context.WithTimeout(ctx, client.FromPoolWithin)
		defer cancel()
		var column []string
		ask := sqltext.With(awaitedSnapshotSQL, label.Process)
		err = with(brief, func(q client.Line) error {
			columns, err := q.Run(ctx, sqltext.Script{ask})
			if err == nil {
				column = columns[0]
			}
			return err
		})
		if err != nil && brief.Err() != nil && known != nil {
			column, err = alone(ctx, known, ask)
		}
		if err != nil || len(column) == 0 || column[0] == "" {
			return 0, false, err
		}
		since, err = time.ParseDuration(column[0] + "s")
		return since, err == nil, err
	}
	return ws
}

// Enter says that the lock of request is asked for. A try does not wait, and is nil.
func (ws *Waits) Enter(request dialects.Request, q client.Line) *Wait {
	if request.Try {
		return nil
	}
	w := &Wait{limit: maxWaitOf(request), interrupt: q.Interrupt, conn: q.PGX}
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.begun = time.Now()
	ws.all[w] = struct{}{}
	if !ws.looking {
		ws.looking = true
		if ws.timer == nil {
			ws.timer = time.AfterFunc(lookEvery, ws.lookAfter)
		} else {
			ws.timer.Reset(lookEvery)
		}
	}
	return w
}

// Leave says that the wait is over. It tells whether it was asked to give way.
func (ws *Waits) Leave(w *Wait) (asked bool) {
	if w == nil {
		return false
	}
	ws.mu.Lock()
	delete(ws.all, w)
	ws.mu.Unlock()
	return w.end()
}

// lookAfter comes again as long as there are waits.
func (ws *Waits) lookAfter() {
	ws.mu.Lock()
	if ws.looking = len(ws.all) > 0; !ws.looking {
		ws.mu.Unlock()
		return
	}
	long, known := false, (*pgx.Conn)(nil)
	for w := range ws.all {
		long = long || time.Since(w.begun) >= lookEvery
		known = cmp.Or(known, w.conn)
	}
	ws.mu.Unlock()

	if long {
		ctx, cancel := context.WithTimeout(context.Background(), lookLimit)
		// The error is nobody's: who waits is told by its own connection, and this comes again.
		since, some, err := ws.look(ctx, known)
		cancel()
		answered := time.Now() // rather too late: a wait that began a little later gives way too
		ws.tell(func(w *Wait) bool {
			return time.Since(w.begun) >= w.limit || err == nil && some && w.begun.Before(answered.Add(-since))
		})
	}
	ws.mu.Lock()
	ws.timer.Reset(lookEvery)
	ws.mu.Unlock()
}

// tell asks the waits that must to give way.
func (ws *Waits) tell(must func(*Wait) bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for w := range ws.all {
		if must(w) {
			w.giveWay()
		}
	}
}

// awaitedSnapshotSQL tells for how long somebody has been waiting until the transaction of a
// session ends that waits for a lock and has the label of this process.
const awaitedSnapshotSQL = "select extract(epoch from clock_timestamp() - min(waiter.waitstart))::text " +
	"from pg_locks waiter join pg_locks ours on ours.locktype = 'virtualxid' and ours.granted " +
	"and ours.virtualxid = waiter.virtualxid join pg_stat_activity session on session.pid = ours.pid " +
	"where waiter.locktype = 'virtualxid' and not waiter.granted " +
	"and session.application_name ~ ($1::text || '[ +]') " +
	"and exists (select from pg_locks queued where queued.pid = ours.pid and not queued.granted)"
