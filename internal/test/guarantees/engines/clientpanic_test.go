package engines

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// A client library may panic, as a tracer of its user's has it do, in any statement of a nested
// call. The owner recovers and goes on. Its session ends all the same, and commits nothing of a
// nested Do that has failed.
func TestClientPanics(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		if e.Postgres && !e.Further {
			clientPanics(t, testbed.NewFixture(t, e, testbed.PgxOpened()))
		}
	}
}

func clientPanics(t *testing.T, f *testbed.Fixture[pgx.Tx]) {
	table := f.MakeTable(t, "id int")
	tracer := &panicky{}
	_, locks := onPool(t, f, "", func(config *pgx.ConnConfig) { config.Tracer = tracer })
	a, b := locks.Mutex(f.Key("a")), locks.Mutex(f.Key("b"))
	errWork := errors.New("work")
	nested := func(in int, call func()) (panicked bool) {
		defer func() { tracer.in, panicked = 0, recover() != nil }()
		tracer.in = in
		call()
		return false
	}
	nothing := func(context.Context, pgx.Tx) error { return nil }
	free := func() {
		ctx, cancel := context.WithTimeout(background, 5*time.Second)
		defer cancel()
		require.NoError(t, locks.Mutex(f.Key("a"), f.Key("b")).Do(ctx, nothing))
	}
	for in, panics := 1, true; panics; in++ {
		outer, err := a.Lock(background)
		require.NoError(t, err)
		panics = nested(in, func() {
			lock, err := b.Lock(outer.Context())
			require.NoError(t, err)
			require.NoError(t, lock.Unlock(background))
		})
		_ = outer.Unlock(background)
		free()
	}
	for in, panics := 1, true; panics; in++ {
		err := a.Do(background, func(ctx context.Context, _ pgx.Tx) error {
			panics = nested(in, func() {
				require.ErrorIs(t, b.Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
					require.NoError(t, f.Exec(ctx, tx, "INSERT INTO "+table+" VALUES (1)"))
					return errWork
				}), errWork)
			})
			return nil
		})
		require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+table), "in %d: %v", in, err)
		free()
	}
}

// panicky is a tracer of pgx's that panics when it is told of the n-th thing from now on.
type panicky struct{ in int }

func (p *panicky) told() {
	if p.in--; p.in == 0 {
		panic("the tracer of the client library")
	}
}

func (p *panicky) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	p.told()
	return ctx
}

func (p *panicky) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) { p.told() }

func (p *panicky) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	p.told()
	return ctx
}

func (p *panicky) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) { p.told() }

func (p *panicky) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) { p.told() }
