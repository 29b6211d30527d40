package inspection

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// hold names a hold for End. The virtual transaction does, until the lock is renewed. Then it is
// the session, its turnstile, and when the first lock was granted, in seconds since 1970.
type hold struct {
	transaction string
	turnstile   string // empty: not known
	granted     float64
}

func (h hold) String() string {
	return fmt.Sprintf("%s %s %.2f", h.transaction, h.turnstile, h.granted)
}

func holdOf(party dialects.Party) (h hold) {
	fields := strings.SplitN(party.Transaction, " ", 3)
	if len(fields) == 3 {
		h.transaction, h.turnstile = fields[0], fields[1]
		h.granted, _ = strconv.ParseFloat(fields[2], 64)
	}
	return h
}

// sameGrant is how far apart the times of one grant may be: what a session shows is rounded.
const sameGrant = 0.15

// renewed tells whether a session now shows what h was, in another transaction.
func (h hold) renewed(s *session) bool {
	return h.turnstile != "" && s != nil && s.hasRenewed() && math.Abs(s.firstGrant()-h.granted) < sameGrant
}

// endSQL ends a session that is still in the transaction, and has the turnstile if it had one. It
// tells whether the session ended within 5 s.
const endSQL = "select pg_terminate_backend(pid, 5000)::text from (select distinct pid from pg_locks " +
	"where pid::text = $1 and virtualtransaction = $2 and ($3 = '' or locktype = 'advisory' and granted " +
	"and objsubid || ':' || classid || ':' || objid = $3)) s"

// End ends a session that Look has shown as one that holds. Dialects.ErrChanged says that it does
// not hold that any more.
func End(ctx context.Context, run Run, party dialects.Party) error {
	h := holdOf(party)
	end := sqltext.Script{sqltext.With(endSQL, party.Session, h.transaction, h.turnstile)}
	columns, err := run(ctx, end)
	if err == nil && len(columns[0]) == 0 {
		var now picture
		pid, _ := strconv.Atoi(party.Session)
		if _, err = now.read(ctx, run, nil); err == nil && h.renewed(now.sessions[pid]) {
			end[0].Args[1] = now.sessions[pid].Transaction
			columns, err = run(ctx, end)
		}
	}
	switch {
	case err != nil:
		return err
	case len(columns[0]) == 0:
		return dialects.ErrChanged
	case columns[0][0] != "true":
		return fmt.Errorf("session %s was told to end, and had not done so after 5 s", party.Session)
	}
	return nil
}
