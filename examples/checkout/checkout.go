package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
)

// bank moves money, in a system of its own. The reference makes a payment that is asked for twice
// one payment.
type bank interface {
	Charge(ctx context.Context, reference, cart string) error
	Refund(ctx context.Context, reference string) error
}

// checkout sells seats. Any number of processes may serve the same carts.
type checkout struct {
	pool  *pgxpool.Pool
	locks *txlock.Locker[pgx.Tx]
	bank  bank
	holds time.Duration // how long a cart may take to pay
}

func open(ctx context.Context, dsn string, bank bank, holds time.Duration) (c checkout, err error) {
	c = checkout{bank: bank, holds: holds}
	if c.pool, err = pgxpool.New(ctx, dsn); err != nil {
		return c, err
	}
	c.locks = txlock.New(postgres.New(c.pool))
	if err = c.locks.Install(ctx); err != nil {
		return c, err
	}
	return c, c.locks.Mutex("create tables").Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS tickets (seat text PRIMARY KEY, cart text NOT NULL, "+
			"reference text NOT NULL)")
		return err
	})
}

func (c checkout) close() {
	_ = c.locks.Close()
	c.pool.Close()
}

// errTaken says that another cart has the seat, or has bought it.
var errTaken = errors.New("the seat is taken")

// choose claims a seat for a cart. The text goes to the browser, and comes back with pay.
func (c checkout) choose(ctx context.Context, seat, cart string) (text string, err error) {
	held, err := c.locks.Claim("seat:"+seat).TryTake(ctx, cart, c.holds)
	if errors.Is(err, txlock.ErrNotAcquired) {
		return "", fmt.Errorf("%w: %w", errTaken, err)
	}
	if err != nil {
		return "", err
	}
	var sold bool
	err = c.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM tickets WHERE seat = $1)", seat).Scan(&sold)
	if err == nil && sold {
		err = errors.Join(errTaken, held.Release(ctx))
	}
	return held.String(), err
}

// pay charges the cart of this browser, and sells it the seat. What the text says is compared with
// the cart that the browser's session has, and by Do with the claim. Before that it may be a guess:
// so the reference has the cart, and what is charged and paid back is nobody else's.
//
// A payment may take longer than the claim lasts. Meanwhile another may have the seat. Then the
// ticket is not committed, and the money goes back.
func (c checkout) pay(ctx context.Context, text, cart string) error {
	held, err := c.locks.Claimed(text)
	if err != nil {
		return err
	}
	seat, ok := strings.CutPrefix(held.Key(), "seat:")
	if !ok || held.By() != cart {
		return errors.New("this is no seat of the cart")
	}
	reference := fmt.Sprintf("%s/%d/%s", held.Key(), held.Token(), cart) // the same when it is sent again
	if err := c.bank.Charge(ctx, reference, cart); err != nil {
		return err
	}
	// A browser that hangs up must not leave a payment without its ticket.
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	err = held.Do(clean, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO tickets (seat, cart, reference) VALUES ($1, $2, $3) "+
			"ON CONFLICT (seat) DO UPDATE SET cart = excluded.cart WHERE tickets.reference = excluded.reference",
			seat, cart, reference)
		return err
	})
	if err == nil {
		_ = held.Release(clean) // else its time ends
		return nil
	}
	// Whether it was committed the table says: an error of Do may leave that open. Behind the lock
	// of another Do, also one that finds the claim over, nobody is about to commit.
	var sold bool
	look := held.Do(clean, func(context.Context, pgx.Tx) error { return nil })
	if look == nil || errors.Is(look, txlock.ErrClaimEnded) {
		look = c.pool.QueryRow(clean, "SELECT EXISTS (SELECT FROM tickets WHERE reference = $1)", reference).Scan(&sold)
	}
	switch {
	case look != nil:
		return errors.Join(err, look)
	case sold:
		return nil
	}
	return errors.Join(err, c.bank.Refund(clean, reference))
}
