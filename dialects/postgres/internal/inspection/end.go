package inspection

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/label"
)

// held names a hold for End. The virtual transaction does, until the lock is renewed. Then it is
// the session, its turnstile, and when the first lock was granted, in seconds since 1970.
type held struct {
	transaction string
	turnstile   string // empty: not known
	granted     float64
}

func (h held) String() string {
	return fmt.Sprintf("%s %s %.2f", h.transaction, h.turnstile, h.granted)
}

func heldOf(party dialects.Party) (h held) {
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
func (h held) renewed(now activity) bool {
	_, _, claims := label.Read(now.Application)
	return h.turnstile != "" && len(claims) > 0 && !claims[0].At.IsZero() &&
		math.Abs(firstGrant(now)-h.granted) < sameGrant
}

// firstGrant is when the session was granted its first lock, as far as it shows that.
func firstGrant(a activity) float64 {
	_, _, claims := label.Read(a.Application)
	switch {
	case len(claims) > 0 && !claims[0].At.IsZero():
		return float64(claims[0].At.UnixMicro()) / 1e6
	case a.Begun == nil:
		return 0
	case len(claims) > 0:
		return *a.Begun + claims[0].After.Seconds()
	}
	return *a.Begun
}

// endSQL ends a session that is still in the transaction, and has the turnstile if it had one. It
// tells whether the session ended within 5 s.
const endSQL = "select pg_terminate_backend(pid, 5000)::text from (select distinct pid from pg_locks " +
	"where pid::text = $1 and virtualtransaction = $2 and ($3 = '' or locktype = 'advisory' and granted " +
	"and objsubid || ':' || classid || ':' || objid = $3)) s"

// End ends a session that Look has shown as one that holds. Dialects.ErrChanged says that it does
// not hold that any more.
func End(ctx context.Context, run Run, party dialects.Party) error {
	h := heldOf(party)
	columns, err := run(ctx, sqltext.Script{sqltext.With(endSQL, party.Session, h.transaction, h.turnstile)})
	if err == nil && len(columns[0]) == 0 {
		var now string
		if now, err = run.renewedAs(ctx, party.Session, h); err == nil && now != "" {
			columns, err = run(ctx, sqltext.Script{sqltext.With(endSQL, party.Session, now, h.turnstile)})
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

// renewedAs is the transaction in which a session holds now what h was; empty: it does not.
func (run Run) renewedAs(ctx context.Context, pid string, h held) (transaction string, err error) {
	columns, err := run(ctx, sqltext.Script{{SQL: sessionsSQL}})
	if err != nil {
		return "", err
	}
	var sessions []activity
	if err := readJSON(columns[0], &sessions); err != nil {
		return "", err
	}
	for _, s := range sessions {
		if strconv.Itoa(s.PID) == pid && h.renewed(s) {
			transaction = s.Transaction
		}
	}
	return transaction, nil
}
