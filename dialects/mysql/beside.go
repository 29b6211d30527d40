package mysql

import (
	"context"
	"database/sql"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/installation"
	"github.com/txlock/txlock/dialects/mysql/internal/records"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// What a driver does beside locking stands in rooms of its own.

// Find implements dialects.Driver.
func (d *Driver) Find(ctx context.Context, table string) (dialects.LockTable, error) {
	return installation.Find(ctx, d.from(), table)
}

// Install implements dialects.Driver.
func (d *Driver) Install(ctx context.Context, layout dialects.Layout) error {
	return installation.Install(ctx, d.from(), layout)
}

// Schema implements dialects.Driver.
func (d *Driver) Schema(layout dialects.Layout) (string, error) { return installation.Schema(layout) }

// Check implements dialects.Driver.
func (d *Driver) Check(ctx context.Context, table string, lease time.Duration) error {
	return installation.Check(ctx, d.from(), table, lease)
}

// Ping implements dialects.Driver.
func (d *Driver) Ping(ctx context.Context, table string) error {
	return installation.Ping(ctx, d.from(), table)
}

// Seats implements dialects.Electorate.
func (d *Driver) Seats(ctx context.Context, table string, election dialects.Named, create bool) (
	dialects.Seats, error,
) {
	return records.Seats(ctx, d.from(), table, election, create)
}

// Appoint implements dialects.Electorate.
func (d *Driver) Appoint(ctx context.Context, seats dialects.Seats, identity string, term int64) error {
	return records.Appoint(ctx, d.from(), seats, identity, term)
}

// Leader implements dialects.Electorate.
func (d *Driver) Leader(ctx context.Context, seats dialects.Seats) (dialects.Leader, error) {
	return records.Leader(ctx, d.from(), seats)
}

// Passing implements dialects.Electorate.
func (d *Driver) Passing(err error) bool { return server.Passing(err) }

// Permits implements dialects.Semaphores.
func (d *Driver) Permits(ctx context.Context, table string, semaphore dialects.Named, n int) (
	dialects.Permits, error,
) {
	return records.Permits(ctx, d.from(), table, semaphore, n)
}

// Done implements dialects.Recorder.
func (d *Driver) Done(ctx context.Context, marker dialects.Marker) (time.Time, error) {
	return records.Done(ctx, d.from(), marker)
}

// Sweep implements dialects.Recorder.
func (d *Driver) Sweep(ctx context.Context, table string, age time.Duration) (int64, error) {
	return records.Sweep(ctx, d.from(), table, age)
}

// Claims implements dialects.Claimant.
func (d *Driver) Claims(ctx context.Context, table string, hashes ...[32]byte) (
	map[[32]byte]dialects.ClaimState, error,
) {
	return records.Claims(ctx, d.from(), table, hashes)
}

// ChangeClaim implements dialects.Claiming.
func (s *session) ChangeClaim(ctx context.Context, change dialects.ClaimChange) (dialects.ClaimState, error) {
	return records.ChangeClaim(ctx, s.statements(), s.conn.Several, change)
}

// Mark implements dialects.Marking.
func (s *session) Mark(ctx context.Context, marker dialects.Marker) error {
	return records.Mark(ctx, s.statements(), s.conn.Several, marker)
}

// Unmark implements dialects.Marking.
func (s *session) Unmark(ctx context.Context, marker dialects.Marker) error {
	return records.Unmark(ctx, s.statements(), marker)
}

// Inspect implements dialects.Inspector.
func (d *Driver) Inspect(ctx context.Context, of dialects.Inspection) (states []dialects.RowState, err error) {
	err = d.from().With(ctx, func(conn *sql.Conn) (err error) {
		states, err = d.inspector.Inspect(ctx, conn, of)
		return err
	})
	return states, err
}

// End implements dialects.Inspector.
func (d *Driver) End(ctx context.Context, party dialects.Party) error {
	return d.from().With(ctx, func(conn *sql.Conn) error { return d.inspector.End(ctx, conn, party) })
}
