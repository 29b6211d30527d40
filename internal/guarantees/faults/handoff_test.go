//go:build linux

package faults

import (
	"context"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/guarantees/testbed"
)

// PostgreSQL tells a session why it ends, lets go of its locks, and closes the connection some time
// later. A lock that is given back in between was lost, and is handed to nobody.
func TestNothingIsHandedOverAfterTheServersLastWords(t *testing.T) {
	t.Parallel()
	for _, e := range testbed.Engines {
		if !e.Postgres {
			continue
		}
		t.Run(e.Name, func(t *testing.T) {
			t.Parallel()
			queued := make(queueTracer, 1)
			f := testbed.NewSizedFixture(t, e, testbed.PgxOpened(), testbed.PoolSize, heldOpen(t, e.Address()),
				txlock.WithHandOff(100, time.Hour), txlock.WithTracer(queued))
			stranger := testbed.NewFixture(t, e, testbed.PgxOpened())
			m := f.Locks.Mutex(f.Key("relay"))
			held, err := m.Lock(background)
			require.NoError(t, err)
			next := make(chan error, 1)
			go func() {
				lock, err := m.Lock(background)
				if err == nil {
					err = lock.Unlock(background)
				}
				next <- err
			}()
			testbed.Receive(t, queued)

			f.KillSessions(t)
			lock, err := stranger.Locks.Mutex(f.Key("relay")).Lock(background)
			require.NoError(t, err)
			require.ErrorIs(t, held.Unlock(background), txlock.ErrLost)
			require.NoError(t, lock.Unlock(background))
			testbed.Receive(t, next) // whatever: its connection may be one of those that were killed
		})
	}
}

// queueTracer tells who waits in the process.
type queueTracer chan struct{}

func (queueTracer) Asked(ctx context.Context, _ txlock.Call) context.Context { return ctx }
func (queueTracer) Answered(context.Context, error)                          {}
func (queueTracer) Ended(context.Context, error)                             {}
func (q queueTracer) Queued(context.Context)                                 { q <- struct{}{} }
func (queueTracer) Admitted(context.Context)                                 {}

// heldOpen is the address of a relay to a server that passes on what it says, and not that it
// closes a connection.
func heldOpen(t *testing.T, server string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			upstream, err := net.Dial("tcp", server)
			if err != nil {
				_ = client.Close()
				return
			}
			go func() {
				_, _ = io.Copy(client, upstream)
				_ = upstream.Close() // so what the client sends from now on ends both
			}()
			go func() {
				_, _ = io.Copy(upstream, client)
				_, _ = client.Close(), upstream.Close()
			}()
		}
	}()
	return listener.Addr().String()
}
