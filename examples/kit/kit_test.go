package kit

import (
	"context"
	"errors"
	"io"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/txlocktest"
)

// The tests of the program, whichever version open makes an Office of.

// testSell gives the program a pool of one connection. A Sell that takes a second one waits for
// itself.
func testSell(t testing.TB, h house, open func(house) Office) {
	ctx, cancel := context.WithTimeout(context.Background(), txlocktest.Patience)
	defer cancel()
	sold, err := open(h).Sell(ctx, "Hamlet")
	if !sold || err != nil {
		t.Errorf("sold is %v: %v", sold, err)
	}
}

func testPrintAlone(t testing.TB, h house, open func(house) Office) {
	txlocktest.Overlap(t, 3, func(ctx context.Context, enter func() (leave func())) error {
		h := h
		h.print = func(context.Context, string, int) error {
			enter()()
			return nil
		}
		return open(h).Print(ctx, "Faust", 2)
	})
}

// testPrintLost takes the lock away while the first ticket is printed.
func testPrintLost(t testing.TB, h house, open func(house) Office) {
	taken, printed := make(chan struct{}), false
	h.print = func(ctx context.Context, _ string, _ int) error {
		<-taken
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(txlocktest.Patience):
			printed = true
			return nil
		}
	}
	result := make(chan error, 1)
	go func() { result <- open(h).Print(context.Background(), "Hamlet", 1) }()
	txlocktest.Lose(t, h.locks, "print:Hamlet")
	close(taken)
	if err := <-result; printed || !errors.Is(err, txlock.ErrLost) {
		t.Errorf("printed without the lock: %v, and said %v", printed, err)
	}
}

// testCloseLost takes the lock away while the bank works.
func testCloseLost(t testing.TB, h house, open func(house) Office) {
	taken := make(chan struct{})
	h.bank = func(context.Context, string) error {
		<-taken
		return nil
	}
	result := make(chan error, 1)
	go func() { result <- open(h).Close(context.Background(), "Hamlet") }()
	txlocktest.Lose(t, h.locks, "close:Hamlet")
	close(taken)
	if err := <-result; !errors.Is(err, txlock.ErrLost) {
		t.Errorf("closed without the lock, and said %v", err)
	}
}

// TestOffice runs each test on the mended version, which must pass, and on the broken one, which
// must fail where it has a bug.
func TestOffice(t *testing.T) {
	for name, test := range map[string]struct {
		run   func(t testing.TB, h house, open func(house) Office)
		conns int32
		finds bool // a bug of the broken version
	}{
		"sell with one connection":      {testSell, 1, true},
		"print alone":                   {testPrintAlone, 4, false},
		"print no more after a loss":    {testPrintLost, 4, true},
		"say so when the till was lost": {testCloseLost, 4, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test.run(t, newHouse(t, test.conns), func(h house) Office { return mended{h} })
			judge := &judge{TB: t}
			done := make(chan struct{})
			go func() { // a test may leave its goroutine
				defer close(done)
				brief := txlocktest.Within(judge, 5*time.Second)
				test.run(brief, newHouse(t, test.conns), func(h house) Office { return broken{h} })
			}()
			<-done
			require.Equal(t, test.finds, judge.failed)
		})
	}
}

// judge stands for the testing.T of a test that may fail.
type judge struct {
	testing.TB
	failed bool
}

func (j *judge) Errorf(format string, args ...any) {
	j.failed = true
	j.TB.Logf("of the broken version: "+format, args...)
}

func (j *judge) Fatalf(format string, args ...any) {
	j.Errorf(format, args...)
	runtime.Goexit()
}

var dsn string

func TestMain(m *testing.M) {
	ctx := context.Background()
	os.Exit(servers.RunOn(ctx, []servers.Kind{servers.Postgres()}, func(s *servers.Server) (io.Closer, error) {
		dsn = s.DSN
		pool, err := pgxpool.New(ctx, dsn)
		if err != nil {
			return nil, err
		}
		defer pool.Close()
		_, err = pool.Exec(ctx, "CREATE TABLE IF NOT EXISTS shows (name text PRIMARY KEY, seats int); "+
			"INSERT INTO shows VALUES ('Hamlet', 100) ON CONFLICT DO NOTHING")
		return nil, errors.Join(err, txlock.New(postgres.New(pool)).Install(ctx))
	}, m.Run))
}

// newHouse has a pool of so many connections.
func newHouse(t *testing.T, conns int32) house {
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.MaxConns = conns
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	locks := txlock.New(postgres.New(pool))
	t.Cleanup(func() {
		require.NoError(t, locks.Close())
		pool.Close()
	})
	return house{pool: pool, locks: locks}
}
