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
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/servers"
)

// books is a bank that is slow when a test wants it to be.
type books struct {
	slow func(cart string)

	mu       sync.Mutex
	payments map[string]string // carts, by reference
}

func (b *books) Charge(_ context.Context, reference, cart string) error {
	b.slow(cart)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.payments[reference] = cart
	return nil
}

func (b *books) Refund(_ context.Context, reference string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.payments, reference)
	return nil
}

func start(t *testing.T) (dsn string) {
	server, err := servers.Start(t.Context(), servers.Postgres(), servers.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, server.Stop()) })
	return server.DSN
}

func replica(t *testing.T, dsn string, bank bank, holds time.Duration) checkout {
	c, err := open(t.Context(), dsn, bank, holds)
	require.NoError(t, err)
	t.Cleanup(c.close)
	return c
}

// Many carts want few seats, at two replicas. The bank is too slow for some of them, whose seats go
// to others. Each seat is sold once, and who paid has a ticket.
func TestCheckout(t *testing.T) {
	dsn := start(t)
	ctx, cancel := context.WithTimeout(t.Context(), eventually.Patience)
	defer cancel()
	const holds, seats, carts = 3 * time.Second, 4, 12
	var late sync.Map // who waits until the claim is another's
	bank := &books{payments: map[string]string{}}
	bank.slow = func(cart string) {
		if another, slow := late.Load(cart); slow {
			select {
			case <-another.(chan struct{}):
			case <-ctx.Done():
			}
		}
	}
	var replicas []checkout
	for range 2 {
		replicas = append(replicas, replica(t, dsn, bank, holds))
	}
	var group errgroup.Group
	for seat := range seats {
		name := fmt.Sprint(seat)
		slow := fmt.Sprint("slow cart ", seat)
		text, err := replicas[0].choose(ctx, name, slow)
		require.NoError(t, err)
		_, err = replicas[1].choose(ctx, name, "another")
		require.ErrorIs(t, err, errTaken)
		another := make(chan struct{})
		late.Store(slow, another)
		group.Go(func() error {
			if err := replicas[1].pay(ctx, text, slow); !errors.Is(err, txlock.ErrLost) {
				return fmt.Errorf("the seat of %s was sold behind the end of its claim: %w", slow, err)
			}
			return nil
		})
		var once sync.Once
		for cart := range carts {
			group.Go(func() error {
				c, buyer := replicas[cart%2], fmt.Sprint("cart ", cart)
				for sold := false; !sold; <-time.After(20 * time.Millisecond) {
					text, err := c.choose(ctx, name, buyer)
					if err == nil {
						once.Do(func() { close(another) })
						return c.pay(ctx, text, buyer)
					}
					if !errors.Is(err, errTaken) {
						return err
					}
					err = c.pool.QueryRow(ctx, "SELECT EXISTS (SELECT FROM tickets WHERE seat = $1)", name).Scan(&sold)
					if err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	require.NoError(t, group.Wait())
	tickets := map[string]string{}
	rows, err := replicas[0].pool.Query(ctx, "SELECT reference, cart FROM tickets")
	require.NoError(t, err)
	for rows.Next() {
		var reference, cart string
		require.NoError(t, rows.Scan(&reference, &cart))
		tickets[reference] = cart
	}
	require.NoError(t, rows.Err())
	require.Len(t, tickets, seats)
	require.Equal(t, tickets, bank.payments)
}

// Who guesses the text of another's claim gets no seat, and takes nobody's ticket or payment.
func TestGuesses(t *testing.T) {
	ctx := t.Context()
	bank := &books{slow: func(string) {}, payments: map[string]string{}}
	c := replica(t, start(t), bank, time.Minute)
	mine, err := c.choose(ctx, "1", "thief")
	require.NoError(t, err)
	victims, err := c.choose(ctx, "2", "victim")
	require.NoError(t, err)
	fields := strings.Split(mine, ".")
	own, err := c.locks.Claimed(mine)
	require.NoError(t, err)
	guess := func() {
		for token := range 10 { // tokens follow each other
			fields[1] = fmt.Sprint(own.Token() + int64(token) - 3)
			fields[3] = strings.Split(victims, ".")[3]
			require.Error(t, c.pay(ctx, strings.Join(fields, "."), "thief"))
		}
	}
	guess()
	require.Empty(t, bank.payments)
	require.NoError(t, c.pay(ctx, victims, "victim"))
	guess()
	require.Equal(t, 1, len(bank.payments))
	var cart string
	require.NoError(t, c.pool.QueryRow(ctx, "SELECT cart FROM tickets").Scan(&cart))
	require.Equal(t, "victim", cart)
}

// A browser that sends its payment again pays once.
func TestPage(t *testing.T) {
	c := replica(t, start(t), console{}, time.Minute)
	page := httptest.NewServer(c.handler())
	defer page.Close()
	post := func(path, body string) (int, string) {
		response, err := http.Post(page.URL+path, "text/plain", strings.NewReader(body))
		require.NoError(t, err)
		defer response.Body.Close()
		content, err := io.ReadAll(response.Body)
		require.NoError(t, err)
		return response.StatusCode, strings.TrimSpace(string(content))
	}
	choose := "/choose?" + url.Values{"seat": {"12A"}, "cart": {"77"}}.Encode()
	status, text := post(choose, "")
	require.Equal(t, http.StatusOK, status, text)
	status, said := post("/pay?cart=78", text)
	require.Equal(t, http.StatusServiceUnavailable, status, said)
	status, said = post("/pay?cart=77", text)
	require.Equal(t, http.StatusOK, status, said)
	status, said = post("/pay?cart=77", text)
	require.Equal(t, http.StatusOK, status, said)
	status, said = post(strings.Replace(choose, "77", "78", 1), "")
	require.Equal(t, http.StatusConflict, status, said)
}
