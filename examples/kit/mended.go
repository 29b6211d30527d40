package kit

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
)

type mended struct{ house }

// Sell sends all through tx.
func (m mended) Sell(ctx context.Context, show string) (sold bool, err error) {
	err = m.locks.Mutex("sell:"+show).Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, sellSQL, show)
		sold = tag.RowsAffected() == 1
		return err
	})
	return sold && err == nil, err
}

// Print goes on with the context of its lock.
func (m mended) Print(ctx context.Context, show string, tickets int) (err error) {
	lock, err := m.locks.Mutex("print:" + show).Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock(ctx)) }()
	for ticket := range tickets {
		if err := m.print(lock.Context(), show, ticket); err != nil {
			return err
		}
	}
	return nil
}

// Close returns the error of Unlock.
func (m mended) Close(ctx context.Context, show string) (err error) {
	lock, err := m.locks.Mutex("close:" + show).Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lock.Unlock(ctx)) }()
	return m.bank(lock.Context(), show)
}
