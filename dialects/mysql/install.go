package mysql

import (
	"context"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/installation"
)

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
