// Package kit is a small program in two versions, with tests that use package txlocktest. It sells
// seats, prints tickets and closes the till. The version in broken.go has three bugs that work well
// until something goes wrong; that in mended.go has not. The tests are the same for both.
package kit

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/txlock/txlock"
)

// Office is what a program does under locks.
type Office interface {
	// Sell takes one seat of a show, if there is one.
	Sell(ctx context.Context, show string) (sold bool, err error)
	// Print prints so many tickets of a show, one after the other. Two printers at once would mix
	// them up.
	Print(ctx context.Context, show string, tickets int) error
	// Close sends the takings of a show to the bank.
	Close(ctx context.Context, show string) error
}

// house is what both versions have.
type house struct {
	pool  *pgxpool.Pool
	locks *txlock.Locker[pgx.Tx]
	print func(ctx context.Context, show string, ticket int) error // returns when the ticket is out
	bank  func(ctx context.Context, show string) error
}

const sellSQL = "UPDATE shows SET seats = seats - 1 WHERE name = $1 AND seats > 0"
