package inspection

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
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
	"and concat_ws(':', objsubid, classid, objid) = $3)) s"

// End does what dialects.Inspector promises.
func (i Inspector) End(ctx context.Context, party dialects.Party) error {
	return i.with(ctx, func(q client.Line) error {
		err := end(ctx, q.Run, party)
		if server.State(err) == server.NoPrivilege {
			err = fmt.Errorf("only the session's own role, and members of pg_signal_backend, may end it (GRANT "+
				"pg_signal_backend TO …): %w", err)
		}
		return err
	})
}

func end(ctx context.Context, run run, party dialects.Party) error {
	h := holdOf(party)
	script := sqltext.Script{sqltext.With(endSQL, party.Session, h.transaction, h.turnstile)}
	columns, err := run(ctx, script)
	if err == nil && len(columns[0]) == 0 {
		var now picture
		pid, _ := strconv.Atoi(party.Session)
		if _, err = now.read(ctx, run, nil); err == nil && h.renewed(now.sessions[pid]) {
			script[0].Args[1] = now.sessions[pid].Transaction
			columns, err = run(ctx, script)
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
