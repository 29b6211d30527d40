package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/internal/test/wire"
)

func start(t *testing.T) *url.URL {
	server, err := servers.Start(t.Context(), servers.Postgres(), servers.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	dsn, err := url.Parse(server.URL())
	require.NoError(t, err)
	return dsn
}

// replica is a server of the shop.
type replica struct {
	shop
	url string
}

func serve(t *testing.T, dsn *url.URL, do work) replica {
	s, err := open(t.Context(), dsn.String())
	require.NoError(t, err)
	t.Cleanup(s.close)
	server := httptest.NewServer(idempotent(s.locks, do))
	t.Cleanup(server.Close)
	return replica{s, server.URL}
}

// send sends a request once.
func (r replica) send(key, body string) (status int, text string) {
	request, err := http.NewRequest(http.MethodPost, r.url, strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	request.Header.Set("Idempotency-Key", key)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil {
		return 0, err.Error()
	}
	if again := response.Header.Get("Retry-After") != ""; again != mayAskAgain(response.StatusCode) {
		return 0, fmt.Sprint("Retry-After with status ", response.StatusCode)
	}
	return response.StatusCode, string(content)
}

func mayAskAgain(status int) bool {
	return status == http.StatusServiceUnavailable || status == http.StatusConflict
}

// insist sends a request again as long as it is told to.
func (r replica) insist(key, body string) string {
	for begun := time.Now(); ; {
		if status, text := r.send(key, body); !mayAskAgain(status) || time.Since(begun) > eventually.Patience {
			return fmt.Sprint(status, " ", text)
		}
	}
}

// placed is how many orders there are.
func (r replica) placed(t *testing.T) (n int) {
	require.NoError(t, r.pool.QueryRow(t.Context(), "SELECT count(*) FROM placed_orders").Scan(&n))
	return n
}

// Clients send each request many times at once, to two replicas, one of whose tries fails. Each
// order is placed once, and all of its clients get the same answer.
func TestDuplicatesAtOnce(t *testing.T) {
	dsn := start(t)
	var tries atomic.Int64
	flaky := func(ctx context.Context, tx pgx.Tx, body []byte) (answer, error) {
		made, err := placeOrder(ctx, tx, body)
		if err == nil && tries.Add(1)%3 == 0 {
			err = errors.New("the power went out")
		}
		return made, err
	}
	replicas := []replica{serve(t, dsn, flaky), serve(t, dsn, flaky)}
	const orders, copies = 8, 6
	answers := make([]sync.Map, orders)
	var clients sync.WaitGroup
	for order := range orders {
		for client := range copies {
			clients.Go(func() {
				text := replicas[client%2].insist(fmt.Sprint("key ", order), fmt.Sprint("order ", order))
				answers[order].Store(text, true)
			})
		}
	}
	clients.Wait()
	given := map[string]bool{}
	for order := range orders {
		n := 0
		answers[order].Range(func(text, _ any) bool {
			require.Contains(t, text, `201 {"order": `)
			given[text.(string)] = true
			n++
			return true
		})
		require.Equal(t, 1, n)
	}
	require.Len(t, given, orders)
	require.Equal(t, orders, replicas[0].placed(t))
}

// While a request is under way, its duplicate is 409 at the other replica. The key with another
// body is 422. A month later the key is new.
func TestKey(t *testing.T) {
	dsn := start(t)
	begun, end := make(chan struct{}), make(chan struct{})
	slow := serve(t, dsn, func(ctx context.Context, tx pgx.Tx, body []byte) (answer, error) {
		close(begun)
		<-end
		return placeOrder(ctx, tx, body)
	})
	other := serve(t, dsn, placeOrder)
	first := make(chan string, 1)
	go func() {
		_, text := slow.send("key", "order")
		first <- text
	}()
	<-begun
	status, _ := other.send("key", "order")
	require.Equal(t, http.StatusConflict, status)
	close(end)
	placed := <-first
	require.Equal(t, "201 "+placed, other.insist("key", "order"))
	require.Contains(t, other.insist("key", "another order"), "422 ")
	require.Contains(t, other.insist("", "order"), "400 ")

	require.NoError(t, other.sweep(t.Context()))
	require.Equal(t, "201 "+placed, other.insist("key", "order"))
	_, err := other.pool.Exec(t.Context(), "UPDATE txlock_slots_once SET done_at = done_at - interval '31 days'")
	require.NoError(t, err)
	require.NoError(t, other.sweep(t.Context()))
	require.NotEqual(t, "201 "+placed, other.insist("key", "another order"))
	require.Equal(t, 2, other.placed(t))
}

// The connection breaks while the server commits. The replica does not know, and says so: its
// client asks again, and gets what was committed.
func TestCrashBehindTheWork(t *testing.T) {
	dsn := start(t)
	proxy, err := wire.Listen(dsn.Host)
	require.NoError(t, err)
	defer proxy.Close()
	healthy := serve(t, dsn, placeOrder)
	_, err = healthy.pool.Exec(t.Context(), `
		CREATE FUNCTION commit_slowly() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN PERFORM pg_advisory_xact_lock(4711); RETURN NULL; END';
		CREATE CONSTRAINT TRIGGER commit_slowly AFTER INSERT ON placed_orders DEFERRABLE INITIALLY DEFERRED
			FOR EACH ROW EXECUTE FUNCTION commit_slowly()`)
	require.NoError(t, err)
	gate, err := healthy.pool.Begin(t.Context())
	require.NoError(t, err)
	defer gate.Rollback(context.WithoutCancel(t.Context()))
	_, err = gate.Exec(t.Context(), "SELECT pg_advisory_xact_lock(4711)")
	require.NoError(t, err)

	far := *dsn
	far.Host = proxy.Addr()
	broken := serve(t, &far, placeOrder)
	status := make(chan int, 1)
	go func() {
		got, _ := broken.send("key", "order")
		status <- got
	}()
	eventually.True(t, "the server commits", func() (waits bool) {
		const waiting = "SELECT EXISTS (SELECT FROM pg_locks WHERE objid = 4711 AND NOT granted)"
		require.NoError(t, healthy.pool.QueryRow(t.Context(), waiting).Scan(&waits))
		return waits
	})
	require.Zero(t, healthy.placed(t))
	release := proxy.Hold()
	require.NoError(t, gate.Commit(t.Context()))
	eventually.True(t, "it is committed", func() bool { return healthy.placed(t) == 1 })
	proxy.Cut()
	release()
	require.Equal(t, http.StatusServiceUnavailable, <-status)
	require.Contains(t, healthy.insist("key", "order"), `201 {"order": 1}`)
	require.Contains(t, broken.insist("key", "order"), `201 {"order": 1}`)
	require.Equal(t, 1, healthy.placed(t))
}
