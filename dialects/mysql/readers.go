package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// InnoDB numbers a transaction when it first locks a row alone. One that only shares rows has the
// number 0 on MariaDB, and on MySQL the address of a structure that its session uses again for the
// next transaction. So the number does not tell which transaction a session is in: MySQL's event
// does, and on MariaDB the second in which it began.

// firstAddress is the least of the numbers that MySQL makes of addresses.
const firstAddress = 1 << 48

// identity is what tells the transaction of a lock from others of its session.
func (p *picture) identity(transaction, session string) string {
	number, err := strconv.ParseUint(transaction, 10, 64)
	if err != nil || number != 0 && number < firstAddress {
		return transaction
	}
	return transaction + " " + p.begins[session]
}

// errUnnumbered says that nobody can tell the transaction from the session's next.
var errUnnumbered = errors.New("the server does not tell the transaction of this reader from the next one of its " +
	"session: look again a second later; on MySQL that takes the consumer events_transactions_current of " +
	"performance_schema")

// takeApart is the number of a transaction and, if it has none of its own, when it began. Either is
// a number.
func takeApart(party dialects.Party) (number, begin string, err error) {
	number, begin, unnumbered := strings.Cut(party.Transaction, " ")
	if unnumbered && begin == "" {
		return "", "", errUnnumbered
	}
	for _, text := range []string{party.Session, number, "0" + begin} {
		if _, err := strconv.ParseUint(text, 10, 64); err != nil {
			return "", "", fmt.Errorf("session %q is none of Inspect's", party.Session)
		}
	}
	return number, begin, nil
}

// suspects are the unnumbered sessions of MariaDB of which some share a row. It shows the lock of
// one as that of each.
type suspects struct {
	sharing int // how many of them share it
	parties []dialects.Party
}

// sharingSQL counts the holders of a shared lock, l, by those whom the first that waits for it
// waits for. Who waits behind also waits for others.
const sharingSQL = `(SELECT COUNT(*) FROM information_schema.innodb_lock_waits w
	WHERE w.blocking_lock_id = l.lock_id GROUP BY w.requesting_trx_id ORDER BY 1 LIMIT 1)`

// settle gives the readers to a state: all suspects, if so many share the row. Otherwise it gives
// their number alone. What sessions show of their keys would not do: another lock table may have
// the same key, and Break must not end a session of that.
func (s suspects) settle(state *dialects.RowState) {
	if len(s.parties) <= s.sharing {
		state.Readers = append(state.Readers, s.parties...)
		return
	}
	state.Sharing = s.sharing
}

// eventIs tells whether a session of MySQL is in the transaction with that event.
func eventIs(ctx context.Context, conn *sql.Conn, session, event string) (bool, error) {
	found, err := server.Grid(ctx, conn, `SELECT 1 FROM performance_schema.events_transactions_current x
		JOIN performance_schema.threads t ON t.THREAD_ID = x.THREAD_ID
		WHERE t.PROCESSLIST_ID = `+session+" AND x.STATE = 'ACTIVE' AND x.EVENT_ID = "+event)
	return len(found) > 0, err
}
