// Package inspection shows who holds rows and who waits for them, as the server's views have it,
// and ends sessions that it has shown.
package inspection

import (
	"context"
	"fmt"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// Inspector does what dialects.Inspector promises, by Run of the driver.
type Inspector func(ctx context.Context, q dialects.Query) (lines []string, err error)

// Inspect does what dialects.Inspector promises. It shows all rows, whichever are asked for.
func (run Inspector) Inspect(ctx context.Context, of dialects.Inspection) ([]dialects.Entry, error) {
	slots, err := sqltext.QuoteTable(of.Table.Name)
	if err != nil {
		return nil, err
	}
	ours, readable := tables{slots, of.Table.Kinds.Permits.Table, of.Table.Kinds.Leaders.Table}, []string(nil)
	if !of.Brief {
		// An older version has not installed a table, or its roles were granted only what they
		// needed. That is asked for first, because the server would log an error.
		args := []any{ours.permits, ours.leaders}
		if readable, err = run(ctx, dialects.Query{SQL: readableSQL, Args: args, Table: of.Table.Name}); err != nil {
			return nil, err
		}
	}
	lines, err := run(ctx, dialects.Query{SQL: ours.pictureSQL(readable), Args: []any{slots}, Table: of.Table.Name})
	if err != nil {
		return nil, err
	}
	return ours.entries(lines, of.Table.Slots)
}

// End does what dialects.Inspector promises.
func (run Inspector) End(ctx context.Context, party dialects.Party) error {
	h := strings.SplitN(party.Transaction, " ", 3)
	if len(h) < 3 {
		return dialects.ErrChanged
	}
	ended, err := run(ctx, dialects.Query{SQL: endSQL, Args: []any{party.ID, h[0], h[1], h[2]}})
	switch {
	case server.State(err) == server.NoPrivilege:
		return fmt.Errorf("only the session's own role, and members of pg_signal_backend, may end it (GRANT "+
			"pg_signal_backend TO …): %w", err)
	case err != nil:
		return err
	case len(ended) == 0:
		return dialects.ErrChanged
	case ended[0] != "true":
		return fmt.Errorf("session %s was told to end, and had not done so after 5 s", party.ID)
	}
	return nil
}
