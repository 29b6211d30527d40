package guarantees

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// stuck has work that waits at the server for a row of somebody else's.
type stuck[Tx any] struct {
	*testbed.Fixture[Tx]
	table string
}

func newStuck[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx], options ...txlock.Option) stuck[Tx] {
	f := testbed.NewSizedFixture(t, e, c, testbed.PoolSize, "", options...)
	s := stuck[Tx]{f, f.MakeTable(t, "id int primary key, n int")}
	f.AsAdmin(t, "INSERT INTO "+s.table+" VALUES (1, 0), (2, 0)")
	return s
}

func (s stuck[Tx]) update() string { return "UPDATE " + s.table + " SET n = n + 1 WHERE id = 1" }

// work sends a statement that waits for the row, with the context that the work got.
func (s stuck[Tx]) work(ctx context.Context, tx Tx) error { return s.Exec(ctx, tx, s.update()) }

// during runs call, and hangUp once its work waits. It returns the error of call. Nothing may be
// left of the work then.
func (s stuck[Tx]) during(t *testing.T, call func() error, hangUp func()) error {
	t.Helper()
	row := s.Guest(t)
	require.NoError(t, s.Exec(background, row, "SELECT 1 FROM "+s.table+" WHERE id = 1 FOR UPDATE"))
	done := testbed.Go(call)
	eventually.Every(t, "the work waits", testbed.PollEvery, func() bool {
		select {
		case err := <-done:
			require.Fail(t, "it has returned", "%v", err)
		default:
		}
		return s.Waiting(t) == 1
	})
	hangUp()
	err := testbed.Receive(t, done)
	require.NoError(t, s.End(background, row, false))
	s.Transactions(t, 0)
	require.Zero(t, s.Total(t, "SELECT SUM(n) FROM "+s.table))
	return err
}

// HungUp shows that a context which ends while a statement of the work runs is no loss: its caller
// has given up. The client library closes the connection then.
func HungUp[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	log := &testbed.Logbook{}
	s := newStuck(t, e, c, log.All())
	m := s.Locks.Mutex(s.Key("a"))
	held, err := s.Locks.Claim(s.OnceKey("seat", "claim:")).TryTake(background, "me", time.Hour)
	require.NoError(t, err)
	once := s.Locks.Once(s.OnceKey("once", "once:"))
	runs := 0
	swallow := func(ctx context.Context, tx Tx) error { runs++; _ = s.work(ctx, tx); return nil }
	within := func(nested func(ctx context.Context) error) func(context.Context) error {
		return func(ctx context.Context) error {
			return m.Do(ctx, func(ctx context.Context, _ Tx) error { return nested(ctx) })
		}
	}
	var inner *txlock.Lock
	for name, call := range map[string]func(context.Context) error{
		"Do":         func(ctx context.Context) error { return m.Do(ctx, s.work) },
		"TryDo":      func(ctx context.Context) error { return m.TryDo(ctx, s.work) },
		"Retry":      func(ctx context.Context) error { return m.Retry(3).Do(ctx, swallow) },
		"Rows":       func(ctx context.Context) error { return s.Locks.Rows(s.table, "id", 2).Do(ctx, s.work) },
		"Claimed.Do": func(ctx context.Context) error { return held.Do(ctx, s.work) },
		"Once.Do":    func(ctx context.Context) error { _, err := once.Do(ctx, s.work); return err },
		"nested Do":  within(func(ctx context.Context) error { return m.Do(ctx, s.work) }),
		"nested, swallowed": within(func(ctx context.Context) error {
			_ = m.Do(ctx, s.work)
			return nil
		}),
		"nested Once": within(func(ctx context.Context) error { _, err := once.Do(ctx, s.work); return err }),
		"nested Exec": within(func(ctx context.Context) error {
			return testbed.ErrorOf(m.Exec(ctx, txlock.Statement{SQL: "SELECT 1"}, txlock.Statement{SQL: s.update()}))
		}),
		"Exec": func(ctx context.Context) error {
			return testbed.ErrorOf(m.Exec(ctx, txlock.Statement{SQL: s.update()}))
		},
		"Exec in several trips": func(ctx context.Context) error {
			var n int
			_, err := m.Exec(ctx, txlock.Statement{SQL: "SELECT n FROM " + s.table + " WHERE id = 2", Into: []any{&n}},
				txlock.Statement{SQL: s.update()})
			return err
		},
		"Lock in it": func(ctx context.Context) error {
			return m.Do(ctx, func(ctx context.Context, tx Tx) (err error) {
				inner = testbed.LockIn(t, ctx, s.Locks.Mutex(s.Key("b")))
				return s.work(ctx, tx)
			})
		},
	} {
		ctx, cancel := context.WithCancel(background)
		err := s.during(t, func() error { return call(ctx) }, cancel)
		require.ErrorIs(t, err, context.Canceled, name)
		require.NotErrorIs(t, err, txlock.ErrLost, name)
		s.Free(t, s.Key("a"), s.Key("b"))
	}
	require.Equal(t, 1, runs, "of the call with Retry")
	require.NotErrorIs(t, context.Cause(inner.Context()), txlock.ErrLost)
	require.NotErrorIs(t, inner.Unlock(background), txlock.ErrLost)

	ctx, cancel := context.WithTimeout(background, 4*time.Second) // long enough to come to the wait
	defer cancel()
	err = s.during(t, func() error { return m.Do(ctx, s.work) }, func() { <-ctx.Done() })
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.NotErrorIs(t, err, txlock.ErrLost)

	ctx, cancel = context.WithCancel(background)
	err = s.Locks.Election(s.Key("leader"), "me").Lead(ctx, func(ctx context.Context, _ int64) error {
		cancel()
		return ctx.Err()
	})
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, txlock.ErrLost)

	require.Empty(t, log.Records(t))
	require.NoError(t, held.Do(background, idle[Tx]), "the claim is healthy")
	require.False(t, testbed.IsDone(t, once))
}

// HungUpLate shows what remains a loss: somebody has believed to have the lock.
func HungUpLate[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	s := newStuck(t, e, c)
	m := s.Locks.Mutex(s.Key("a"))
	// The context of the outer Do goes on, and its session is gone.
	ctx, cancel := context.WithCancel(background)
	err := s.during(t, func() error {
		return m.Do(background, func(outer context.Context, _ Tx) error {
			nested, stop := context.WithCancel(outer)
			defer stop()
			defer context.AfterFunc(ctx, stop)()
			_ = m.Do(nested, s.work)
			return nil
		})
	}, cancel)
	require.ErrorIs(t, err, txlock.ErrLost)
	// The loss was noticed before.
	ctx, cancel = context.WithCancel(background)
	defer cancel()
	err = m.Do(ctx, func(ctx context.Context, tx Tx) error {
		s.KillSession(t, tx)
		_ = m.Do(ctx, idle[Tx])
		cancel()
		return nil
	})
	testbed.ErrorIs(t, err, txlock.ErrLost, context.Canceled)
	s.Transactions(t, 0)
	// Close, in the middle of a statement.
	err = s.during(t, func() error { return m.Do(background, s.work) }, func() { _ = s.Locks.Close() })
	testbed.ErrorIs(t, err, txlock.ErrLost, txlock.ErrClosed)
}

// GivenUp shows that the key of a Do, or of an Exec, that is given up is free at once, though a
// statement of its work runs at the server: also where the pool has no second connection.
func GivenUp[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	for _, size := range []int{1, 4} {
		for how, run := range map[string]func(context.Context, *testbed.Fixture[Tx], string) error{
			"Do": func(ctx context.Context, own *testbed.Fixture[Tx], long string) error {
				return own.Locks.Mutex(f.Key("a")).Do(ctx, func(ctx context.Context, tx Tx) error {
					return own.Exec(ctx, tx, long)
				})
			},
			"nested Do": func(ctx context.Context, own *testbed.Fixture[Tx], long string) error {
				return own.Locks.Mutex(f.Key("a")).Do(ctx, func(ctx context.Context, _ Tx) error {
					return own.Locks.Mutex(f.Key("b")).Do(ctx, func(ctx context.Context, tx Tx) error {
						return own.Exec(ctx, tx, long)
					})
				})
			},
			"Exec": func(ctx context.Context, own *testbed.Fixture[Tx], long string) error {
				return testbed.ErrorOf(own.Locks.Mutex(f.Key("a")).Exec(ctx, txlock.Statement{SQL: long}))
			},
		} {
			own := testbed.NewSizedFixture(t, e, c, size, "")
			ctx, cancel := context.WithCancel(background)
			givenUp(t, f, own, how+", and its context ends", cancel,
				func(long string) error { return run(ctx, own, long) })
			if how == "Do" {
				own = testbed.NewSizedFixture(t, e, c, size, "")
				givenUp(t, f, own, "and its Locker is closed", func() { _ = own.Locks.Close() },
					func(long string) error { return run(background, own, long) })
			}
		}
	}
}

// givenUp begins a call whose statement runs for minutes, tells it to stop, and locks its key.
func givenUp[Tx any](t *testing.T, f, own *testbed.Fixture[Tx], how string, stop func(), call func(long string) error) {
	t.Helper()
	// A sleep would not do: MySQL ends that when the client is gone.
	mark := "given_up_" + own.Label
	long := "SELECT '" + mark + "', BENCHMARK(4000000000, SHA2(RAND(), 256))"
	runs := "SELECT COUNT(*) FROM information_schema.processlist WHERE id <> CONNECTION_ID() AND " +
		"info LIKE '%" + mark + "%'"
	if f.Postgres {
		long = "SELECT COUNT(*) AS " + mark + " FROM generate_series(1, 4000000000)"
		runs = "SELECT COUNT(*) FROM pg_stat_activity WHERE state = 'active' AND pid <> pg_backend_pid() AND " +
			"query LIKE '%" + mark + "%'"
	}
	done := testbed.Go(func() error { return call(long) })
	eventually.True(t, "the statement runs", func() bool { return own.Total(t, runs) > 0 })
	begun := time.Now()
	go stop()
	lock, err := f.Locks.Mutex(f.Key("a")).Within(20 * time.Second).Lock(background)
	require.NoError(t, err, how)
	require.Less(t, time.Since(begun), 5*time.Second, how) // 1 s, on a machine that has the time
	testbed.Unlock(t, lock)
	require.Error(t, testbed.Receive(t, done), how)
	eventually.True(t, "the statement ends", func() bool { return own.Total(t, runs) == 0 })
}

// Closing shows that Close ends what is held and what waits, of every kind, and that later calls
// are errors.
func Closing[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, waiting := crowded(t, e, c, testbed.PoolSize, "", txlock.WithQueue(1))
	other := testbed.NewFixture(t, e, c)
	m := f.Locks.Mutex(f.Key("lock"))
	lock := testbed.Lock(t, m)
	closed := make(chan error, 10) // of who waits in the process
	for i := range cap(closed) {
		go func() { closed <- lockOrDo(m, i%2 == 0, func() { t.Error("it was served") }) }()
	}
	waiting.waits(t, cap(closed))

	working, atServer := newOrders(t, f), &orders[Tx]{Fixture: f, key: f.Key("awaited")}
	atServer.Combined = txlock.Combine(atServer.lock, atServer.work)
	working.during = func(ctx context.Context, _ Tx, _ []int) error { <-ctx.Done(); return nil }
	batch := []*placed{working.place(t, 1)}
	working.works(t)
	batch = append(batch, working.place(t, 2), working.place(t, 3))
	held := testbed.Lock(t, other.Locks.Mutex(atServer.key))
	batch = append(batch, atServer.place(t, 4))
	f.Waiters(t, 1)
	batch = append(batch, atServer.place(t, 5))

	leads := candidacy(t, f.Locks.Election(f.Key("election"), "leads"))
	leading := testbed.Receive(t, leads.terms)
	inProcess := candidacy(t, f.Locks.Election(f.Key("election"), "waits in the process"))
	testbed.Receive(t, candidacy(t, other.Locks.Election(f.Key("elsewhere"), "leads elsewhere")).terms)
	elsewhere := candidacy(t, f.Locks.Election(f.Key("elsewhere"), "waits at the server"))
	f.Waiters(t, 2)

	done, _ := f.StartWork(f.Key("do"), working.table)
	begun := make(chan struct{})
	foreign := testbed.Go(func() error {
		return f.Locks.Mutex(f.Key("foreign")).Do(background, func(ctx context.Context, _ Tx) error {
			close(begun)
			<-ctx.Done()
			return fmt.Errorf("of another: %w", txlock.ErrLost)
		})
	})
	testbed.Receive(t, begun)
	begin := time.Now()
	require.NoError(t, f.Locks.Close())
	require.Less(t, time.Since(begin), 20*time.Second)
	require.ErrorIs(t, testbed.Receive(t, foreign), txlock.ErrClosed)
	require.ErrorIs(t, testbed.Receive(t, done), txlock.ErrLost)
	require.ErrorIs(t, context.Cause(lock.Context()), txlock.ErrLost)
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	for range cap(closed) {
		require.ErrorIs(t, testbed.Receive(t, closed), txlock.ErrClosed)
	}
	testbed.Receive(t, leading.ctx.Done())
	require.ErrorIs(t, context.Cause(leading.ctx), txlock.ErrLost)
	for _, c := range []*candidate{leads, inProcess, elsewhere} {
		require.ErrorContains(t, testbed.Receive(t, c.over), "closed")
	}
	require.ErrorContains(t, batch[0].fails(t, txlock.ErrLost), "closed")
	for _, p := range batch[1:] {
		require.ErrorContains(t, p.fails(t, nil), "closed")
	}
	require.Equal(t, [][]int{{1}}, working.worked())
	require.Empty(t, atServer.worked())
	f.Waiters(t, 0)
	testbed.Unlock(t, held)
	other.Free(t, f.Key("lock"), f.Key("do"), atServer.key)
	require.Zero(t, f.Total(t, "SELECT COUNT(*) FROM "+working.table))

	require.ErrorContains(t, testbed.ErrorOf(m.Lock(background)), "closed")
	require.ErrorContains(t, testbed.ErrorOf(working.Do(background, 6)), "closed")
	require.ErrorContains(t, testbed.ErrorOf(f.Locks.Election(f.Key("election"), "late").Leader(background)), "closed")
	require.ErrorContains(t, f.Locks.Election(f.Key("election"), "late").Lead(background, nil), "closed")
	require.ErrorContains(t, f.Locks.Install(background), "closed")
	require.NoError(t, f.Locks.Close(), "a second Close is harmless")
}
