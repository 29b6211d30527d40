package txlock

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/txlock/txlock/internal/label"
)

// Election chooses one leader at a time among all that campaign under the same name, in whichever
// process. It holds no state: many goroutines may use one value.
type Election[Tx any] struct {
	mutex    *Mutex[Tx] // of seat
	seat     seat[Tx]
	identity string
}

// Leader is who leads an election.
type Leader struct {
	Identity string
	Term     int64     // increases strictly from leader to leader
	Since    time.Time // when the term began, by the database's clock
}

// maxIdentity bounds an identity, in bytes.
const maxIdentity = 255

// Election names an election, and who campaigns in it: a host, a pod, whatever tells people which
// process leads. A name is any text of at least one byte. Elections of different names share
// nothing, however many there are. An identity is UTF-8 text of 1 to 255 bytes, and need not be
// unique. A bad name or identity is an error from the first call. Election sends nothing.
//
// Every election that is led or awaited takes a connection of the process, and another for a moment
// when a term begins: so the pool needs at least two.
func (l *Locker[Tx]) Election(name, identity string) *Election[Tx] {
	e := &Election[Tx]{seat: seat[Tx]{locker: l, election: name, hash: label.Hash(name)}, identity: identity}
	e.mutex = &Mutex[Tx]{locker: l, target: &e.seat}
	switch {
	case name == "":
		e.mutex.err = errors.New("the name of the election is empty")
	case identity == "":
		e.mutex.err = errors.New("the identity is empty")
	case len(identity) > maxIdentity:
		e.mutex.err = fmt.Errorf("the identity has %d bytes, at most %d are possible", len(identity), maxIdentity)
	case !utf8.ValidString(identity) || strings.ContainsRune(identity, 0):
		e.mutex.err = fmt.Errorf("identity %.100q: it must be UTF-8 without NUL", identity)
	}
	return e
}

// Lead campaigns, and runs work while it leads. term is larger than that of every leader before,
// also across crashes: it is drawn like [Lock.Token]. Send it with every write to another system,
// and have that refuse a smaller one than it has seen. A leader that was stopped, and does not know
// that another leads, can then do no harm.
//
// The context of work has the values of ctx, and ends
//
//   - with cause [ErrLost], before anybody else can lead, when the session is lost: see
//     [Lock.Context]. Lead waits for work to return, and campaigns again;
//   - with ctx;
//   - with context.Canceled when work has returned, and Lead has begun to resign.
//
// It carries no ownership: a Do with it is an ordinary Do, on another connection. Its commit does
// not depend on the leadership.
//
// Lead returns when work returns without a loss, with its error or nil, or when ctx ends, with the
// error of ctx, unless work returned nil. The leader has resigned then: its session has ended, and
// the next may lead at once. A panic in work resigns, and goes on. So work that has to go on for
// ever ends with its context alone.
//
// While the server cannot be reached, refuses connections or only reads, Lead waits and campaigns
// again: after 0.1 s at first, at last after 5 s, each time half of that to all of it. [WithLogger]
// tells why. Any other error of a campaign is returned: [ErrNotInstalled], or a missing privilege.
// So is that of a Locker that is closed.
//
// Whoever campaigns in the same process waits in it, without a connection. Order is as for any
// lock, whatever [WithQueue] says.
func (e *Election[Tx]) Lead(ctx context.Context, work func(ctx context.Context, term int64) error) error {
	l := e.mutex.locker
	if err := e.mutex.ready(); err != nil {
		return e.mutex.wrap("Lead", err)
	}
	if work == nil {
		return e.mutex.wrap("Lead", errors.New("nil work"))
	}
	if l.info().PoolSize == 1 {
		return e.mutex.wrap("Lead", errors.New("the pool has one connection, and a leader needs two when its term "+
			"begins"))
	}
	var backoff backoff
	for ctx.Err() == nil {
		begun := time.Now()
		worked, err := e.campaign(ctx, work)
		if worked {
			return err
		}
		if l.closed.Load() {
			return e.mutex.wrap("Lead", ErrClosed)
		}
		if ctx.Err() != nil {
			break
		}
		if !e.mayRetry(err) {
			return e.mutex.wrap("Lead", err)
		}
		pause := backoff.after(time.Since(begun), err)
		l.config.logger.WarnContext(ctx, "txlock: no leader here for now, campaigns again", "election", e.seat.election,
			"pause", pause, "error", err)
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		case <-l.closing.Done():
			return e.mutex.wrap("Lead", ErrClosed)
		}
	}
	return e.mutex.wrap("Lead", ctx.Err())
}

// Leader tells who leads now, or [ErrNoLeader]. It asks the server each time, in one round trip; at
// the first call it also looks for the tables. The answer may be old by the time it arrives, so it
// is for people, and for finding the leader, not for excluding anybody.
//
// Nobody leads from the death of a leader until its successor's term is written, which takes some
// round trips. A server that only reads does not know who leads, and is another error.
func (e *Election[Tx]) Leader(ctx context.Context) (Leader, error) {
	if err := e.mutex.ready(); err != nil {
		return Leader{}, e.mutex.wrap("Leader", err)
	}
	leader, err := e.seat.leader(ctx)
	e.mutex.locker.invalidate(err)
	return Leader(leader), e.mutex.wrap("Leader", err)
}
