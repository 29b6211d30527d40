package kit

import (
	"context"

	"github.com/jackc/pgx/v5"
)

type broken struct{ house }

// Sell has a bug: its work sends a statement through the pool, which takes a second connection. The
// statement is not part of the lock's transaction, and when all connections are in use by sellers,
// each of them waits for another one.
func (b broken) Sell(ctx context.Context, show string) (sold bool, err error) {
	err = b.locks.Mutex("sell:"+show).Do(ctx, func(ctx context.Context, _ pgx.Tx) error {
		tag, err := b.pool.Exec(ctx, sellSQL, show)
		sold = tag.RowsAffected() == 1
		return err
	})
	return sold, err
}

// Print has a bug: it goes on with the context of its caller, which does not end when the lock is
// lost. Somebody else prints at the same time then.
func (b broken) Print(ctx context.Context, show string, tickets int) error {
	lock, err := b.locks.Mutex("print:" + show).Lock(ctx)
	if err != nil {
		return err
	}
	for ticket := range tickets {
		if err := b.print(ctx, show, ticket); err != nil {
			_ = lock.Unlock(ctx)
			return err
		}
	}
	return lock.Unlock(ctx)
}

// Close has a bug: it says that all is well when its lock was lost on the way, and somebody else
// may have sent the takings as well.
func (b broken) Close(ctx context.Context, show string) error {
	lock, err := b.locks.Mutex("close:" + show).Lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Unlock(ctx)
	return b.bank(ctx, show)
}
