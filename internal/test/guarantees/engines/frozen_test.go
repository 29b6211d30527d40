package engines

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	client "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
)

// A client that is stopped in the middle of Install, or of Check, keeps what it has for its lease.
func TestStoppedInstall(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			if e.Postgres {
				stopsInInstall(t, e, testbed.PgxOnPool(""))
			} else {
				stopsInInstall(t, e, testbed.MySQLSQL[0])
			}
		})
	}
}

func stopsInInstall[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f, name := testbed.NewFixtureWithTable(t, e, c, txlock.WithSlots(1))
	const lease = 5 * time.Second // the least for these two
	stop := func(after string, call func(installer) error) (begun time.Time) {
		stopped, over := make(chan struct{}), make(chan struct{})
		t.Cleanup(func() { <-over })
		locks := stoppedBehind(t, e, f.DSNFor(f.Label, "", nil), after, stopped, txlock.WithTable(name),
			txlock.WithSlots(1), txlock.WithLease(lease))
		begun = time.Now()
		go func() {
			defer close(over)
			_ = call(locks)
		}()
		testbed.Receive(t, stopped)
		return begun
	}
	stop("CREATE TABLE", func(l installer) error { return l.Install(background) })
	require.NoError(t, f.Locks.Install(background))

	try := map[bool]string{true: "skip locked", false: " NOWAIT"}[e.Postgres]
	begun := stop(try, func(l installer) error { return l.Check(background) })
	f.Taken(t, "k")
	lock, err := f.Locks.Mutex("k").Within(time.Minute).Lock(background)
	require.NoError(t, err)
	require.Greater(t, time.Since(begun), lease/2)
	require.NoError(t, lock.Unlock(background))
}

type installer interface {
	Install(ctx context.Context) error
	Check(ctx context.Context) error
}

// stoppedBehind returns a Locker that hears nothing any more, and does nothing, once the server has
// answered a text. It says when.
func stoppedBehind(t *testing.T, e *testbed.Engine, dsn, text string, stopped chan<- struct{},
	options ...txlock.Option,
) installer {
	p := &process{text: []byte(text), ended: make(chan struct{}), stop: sync.OnceFunc(func() { close(stopped) })}
	behind := func(conn net.Conn, err error) (net.Conn, error) {
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { _ = conn.Close() })
		return &stoppable{conn, p}, nil
	}
	if e.Postgres {
		config, err := pgxpool.ParseConfig(dsn)
		require.NoError(t, err)
		config.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol // the text is executed as it comes
		dial := config.ConnConfig.DialFunc
		config.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			return behind(dial(ctx, network, address))
		}
		pool, err := pgxpool.NewWithConfig(background, config)
		require.NoError(t, err)
		t.Cleanup(pool.Close)
		t.Cleanup(func() { close(p.ended) })
		return txlock.New(postgres.New(pool), options...)
	}
	config, err := client.ParseDSN(dsn)
	require.NoError(t, err)
	config.Net = fmt.Sprintf("stops%p", p)
	client.RegisterDialContext(config.Net, func(ctx context.Context, address string) (net.Conn, error) {
		var dialer net.Dialer
		return behind(dialer.DialContext(ctx, "tcp", address))
	})
	driver, err := mysql.Open(background, config.FormatDSN())
	require.NoError(t, err)
	t.Cleanup(func() { _ = driver.Close() })
	t.Cleanup(func() { close(p.ended) })
	return txlock.New(driver, options...)
}

// process is one that is stopped when the server has answered a text.
type process struct {
	text          []byte
	sent, stopped atomic.Bool
	stop          func()
	ended         chan struct{} // it was killed
}

// stoppable is a connection of a process. When that is stopped, the kernel goes on to take what
// comes, and the process sends and closes nothing.
type stoppable struct {
	net.Conn
	of *process
}

func (s *stoppable) Write(data []byte) (int, error) {
	if s.of.stopped.Load() {
		return len(data), nil
	}
	if bytes.Contains(data, s.of.text) {
		s.of.sent.Store(true)
	}
	return s.Conn.Write(data)
}

func (s *stoppable) Read(data []byte) (int, error) {
	if !s.of.stopped.Load() {
		n, err := s.Conn.Read(data)
		if !s.of.sent.Load() {
			return n, err
		}
		s.of.stopped.Store(true)
		s.of.stop()
	}
	<-s.of.ended
	return 0, net.ErrClosed
}

func (s *stoppable) Close() error {
	if s.of.stopped.Load() {
		return nil
	}
	return s.Conn.Close()
}
