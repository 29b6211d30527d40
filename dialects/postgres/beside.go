package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/inspection"
	"github.com/txlock/txlock/dialects/postgres/internal/installation"
	"github.com/txlock/txlock/dialects/postgres/internal/records"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
)

// What a driver does beside locking stands in rooms of its own.

// Find implements dialects.Driver.
func (d *driver[Tx]) Find(ctx context.Context, table string) (found dialects.LockTable, err error) {
	conn, q, err := d.acquire(ctx)
	if err != nil {
		return found, err
	}
	defer conn.GiveBack()
	return installation.Find(ctx, q.Querier, &d.identity, table)
}

// Install implements dialects.Driver.
func (d *driver[Tx]) Install(ctx context.Context, layout dialects.Layout) error {
	return installation.Install(ctx, d.with, layout)
}

// Schema implements dialects.Driver.
func (d *driver[Tx]) Schema(layout dialects.Layout) (string, error) {
	return installation.Schema(layout)
}

// Check implements dialects.Driver.
func (d *driver[Tx]) Check(ctx context.Context, table string, lease time.Duration) error {
	return installation.Check(ctx, d.with, table, lease)
}

// Ping implements dialects.Driver.
func (d *driver[Tx]) Ping(ctx context.Context, table string) error {
	return installation.Ping(ctx, d.with, table)
}

// Seats implements dialects.Electorate.
func (d *driver[Tx]) Seats(ctx context.Context, table string, election dialects.Named, create bool) (
	dialects.Seats, error,
) {
	return records.Seats(ctx, d.with, table, election, create)
}

// Appoint implements dialects.Electorate.
func (d *driver[Tx]) Appoint(ctx context.Context, seats dialects.Seats, identity string, term int64) error {
	d.waits.Aside.RLock()
	defer d.waits.Aside.RUnlock()
	return records.Appoint(ctx, d.with, seats, identity, term)
}

// Leader implements dialects.Electorate.
func (d *driver[Tx]) Leader(ctx context.Context, seats dialects.Seats) (dialects.Leader, error) {
	return records.Leader(ctx, d.with, seats)
}

// Passing implements dialects.Electorate.
func (d *driver[Tx]) Passing(err error) bool { return server.Passing(err) }

// Permits implements dialects.Semaphores.
func (d *driver[Tx]) Permits(ctx context.Context, table string, semaphore dialects.Named, n int) (
	dialects.Permits, error,
) {
	return records.Permits(ctx, d.with, table, semaphore, n)
}

// Done implements dialects.Recorder.
func (d *driver[Tx]) Done(ctx context.Context, marker dialects.Marker) (time.Time, error) {
	return records.Done(ctx, d.with, marker)
}

// Sweep implements dialects.Recorder.
func (d *driver[Tx]) Sweep(ctx context.Context, table string, age time.Duration) (int64, error) {
	return records.Sweep(ctx, d.with, table, age)
}

// Claims implements dialects.Claimant.
func (d *driver[Tx]) Claims(ctx context.Context, table string, hashes ...[32]byte) (
	map[[32]byte]dialects.ClaimState, error,
) {
	return records.Claims(ctx, d.with, table, hashes)
}

// ChangeClaim implements dialects.Claiming.
func (s *session[Tx]) ChangeClaim(ctx context.Context, change dialects.ClaimChange) (dialects.ClaimState, error) {
	return records.ChangeClaim(ctx, s.Querier, change)
}

// Mark implements dialects.Marking.
func (s *session[Tx]) Mark(ctx context.Context, marker dialects.Marker) error {
	return records.Mark(ctx, s.Querier, marker)
}

// Unmark implements dialects.Marking.
func (s *session[Tx]) Unmark(ctx context.Context, marker dialects.Marker) error {
	return records.Unmark(ctx, s.Querier, marker)
}

// Inspect implements dialects.Inspector.
func (d *driver[Tx]) Inspect(ctx context.Context, of dialects.Inspection) (states []dialects.RowState, err error) {
	table, err := inspection.TableOf(of)
	if err != nil {
		return nil, err
	}
	err = d.with(ctx, func(q client.Querier) error {
		states, err = inspection.Look(ctx, q.Run, table, of)
		return server.Ours(err, table)
	})
	return states, err
}

// End implements dialects.Inspector.
func (d *driver[Tx]) End(ctx context.Context, party dialects.Party) error {
	return d.with(ctx, func(q client.Querier) error {
		err := inspection.End(ctx, q.Run, party)
		if server.State(err) == server.NoPrivilege {
			err = fmt.Errorf("only the session's own role, and members of pg_signal_backend, may end it (GRANT "+
				"pg_signal_backend TO …): %w", err)
		}
		return err
	})
}
