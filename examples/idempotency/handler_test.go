package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/test/servers"
)

// Clients send each request many times at once, to two replicas, one of whose tries fails. Each
// order is placed once, and all of its clients get the same answer.
func TestDuplicatesAtOnce(t *testing.T) {
	ctx := t.Context()
	server, err := servers.Start(ctx, servers.Postgres(), servers.Options{})
	require.NoError(t, err)
	defer func() { require.NoError(t, server.Stop()) }()
	var replicas []*httptest.Server
	var tries atomic.Int64
	flaky := func(ctx context.Context, tx pgx.Tx, body []byte) (answer, error) {
		made, err := placeOrder(ctx, tx, body)
		if err == nil && tries.Add(1)%3 == 0 {
			err = errors.New("the power went out")
		}
		return made, err
	}
	var s shop
	for range 2 {
		s, err = open(ctx, server.DSN)
		require.NoError(t, err)
		defer s.close()
		replica := httptest.NewServer(idempotent(s.locks, s.pool, flaky))
		defer replica.Close()
		replicas = append(replicas, replica)
	}
	send := func(replica int, key, body string) (status int, text string) {
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, replicas[replica].URL, strings.NewReader(body))
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
		return response.StatusCode, string(content)
	}
	const orders, copies = 8, 6
	answers := make([]sync.Map, orders)
	var clients sync.WaitGroup
	for order := range orders {
		for client := range copies {
			clients.Go(func() {
				status, text := http.StatusServiceUnavailable, ""
				for status == http.StatusServiceUnavailable { // as it was told
					status, text = send(client%2, fmt.Sprint("key ", order), fmt.Sprint("order ", order))
				}
				answers[order].Store(fmt.Sprint(status, " ", text), true)
			})
		}
	}
	clients.Wait()
	for order := range orders {
		var given []string
		answers[order].Range(func(text, _ any) bool {
			given = append(given, text.(string))
			return true
		})
		require.Len(t, given, 1)
		require.Contains(t, given[0], `201 {"order": `)
	}
	var placed, different int
	require.NoError(t, s.pool.QueryRow(ctx, "SELECT count(*), count(DISTINCT what) FROM placed_orders").
		Scan(&placed, &different))
	require.Equal(t, orders, placed)
	require.Equal(t, orders, different)
	status, _ := send(0, "key 1", "another order")
	require.Equal(t, http.StatusUnprocessableEntity, status)
	status, _ = send(0, "", "order")
	require.Equal(t, http.StatusBadRequest, status)
}
