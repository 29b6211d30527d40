// Package inspection shows who holds rows and who waits for them, as the server's views have it,
// and ends sessions that it has shown.
package inspection

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Inspector does what dialects.Inspector promises.
type Inspector struct{ with client.With }

// New returns an Inspector, and sends nothing.
func New(with client.With) Inspector { return Inspector{with} }

// Inspect does what dialects.Inspector promises. It shows all slots, whichever are asked for.
func (i Inspector) Inspect(ctx context.Context, of dialects.Inspection) (states []dialects.RowState, err error) {
	slots, err := sqltext.QuoteTable(of.Table.Name)
	beside, failed := sqltext.Beside(of.Table.Name)
	if err = cmp.Or(err, failed); err != nil {
		return nil, err
	}
	permits, leaders := beside(locktable.Permits), beside(locktable.Leaders)
	err = i.with(ctx, func(q client.Line) error {
		// An older version has not installed a table, or its roles were granted only what they
		// needed. That is asked for first, because the server would log an error.
		readable, err := q.Run(ctx, sqltext.Script{readableSQL(permits), readableSQL(leaders)})
		if err != nil {
			return err
		}
		p := picture{slots: of.Table.Slots, tables: []ours{{quoted: slots}}}
		for n, table := range []ours{{dialects.KindSemaphore, permits}, {dialects.KindElection, leaders}} {
			if readable[n][0] == "true" {
				p.tables = append(p.tables, table)
			}
		}
		var script sqltext.Script
		for _, table := range p.tables {
			script = append(script, oursSQL(table, of.Names))
		}
		// The sessions come last: one that has ended since has no lock that matters.
		script = append(script, sqltext.Statement{SQL: callersSQL}, sqltext.Statement{SQL: sessionsSQL})
		columns, err := q.Run(ctx, script)
		if err != nil {
			return err
		}
		states, err = p.states(columns)
		return err
	})
	return states, server.Ours(err, of.Table.Name)
}

// End does what dialects.Inspector promises.
func (i Inspector) End(ctx context.Context, party dialects.Party) error {
	h := strings.SplitN(party.Transaction, " ", 3)
	if len(h) < 3 {
		return dialects.ErrChanged
	}
	return i.with(ctx, func(q client.Line) error {
		columns, err := q.Run(ctx, sqltext.Script{sqltext.With(endSQL, party.Session, h[0], h[1], h[2])})
		switch {
		case server.State(err) == server.NoPrivilege:
			return fmt.Errorf("only the session's own role, and members of pg_signal_backend, may end it (GRANT "+
				"pg_signal_backend TO …): %w", err)
		case err != nil:
			return err
		case len(columns[0]) == 0:
			return dialects.ErrChanged
		case columns[0][0] != "true":
			return fmt.Errorf("session %s was told to end, and had not done so after 5 s", party.Session)
		}
		return nil
	})
}
