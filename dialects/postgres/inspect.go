package postgres

import (
	"context"
	"fmt"
	"strings"

	"github.com/txlock/txlock/dialects"
)

// Inspect implements dialects.Inspector.
func (d *driver[Tx]) Inspect(ctx context.Context, table string, slots int, only []int) (
	states []dialects.RowState, err error,
) {
	err = d.withConn(ctx, func(q querier) error {
		p, err := q.look(ctx, table)
		if err == nil {
			states = p.queues(table, slots, only)
		}
		return err
	})
	return states, err
}

// endSQL ends a session that is still in the transaction, and has the turnstile if it had one. It
// tells whether the session ended within 5 s.
const endSQL = "select pg_terminate_backend(pid, 5000)::text from (select distinct pid from pg_locks " +
	"where pid::text = $1 and virtualtransaction = $2 and ($3 = '' or locktype = 'advisory' and objsubid = 1 " +
	"and granted and ((classid::bigint << 32) | objid::bigint)::text = $3)) s"

// End implements dialects.Inspector.
func (d *driver[Tx]) End(ctx context.Context, party dialects.Party) error {
	transaction, turnstile, _ := strings.Cut(party.Transaction, " ")
	return d.withConn(ctx, func(q querier) error {
		columns, err := q.run(ctx, script{{endSQL, []any{party.Session, transaction, turnstile}}})
		switch {
		case sqlState(err) == noPrivilege:
			return fmt.Errorf("only the session's own role, and members of pg_signal_backend, may end it (GRANT "+
				"pg_signal_backend TO …): %w", err)
		case err != nil:
			return err
		case len(columns[0]) == 0:
			return dialects.ErrChanged
		case !isTrue(columns[0][0]):
			return fmt.Errorf("session %s was told to end, and had not done so after 5 s", party.Session)
		}
		return nil
	})
}
