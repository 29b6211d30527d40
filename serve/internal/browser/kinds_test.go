package browser_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/serve"
)

// Real locks of each kind are shown as what they are. A reader that is ended by the page takes
// nobody with it.
func TestKinds(t *testing.T) {
	f := serving(t, serve.AllowBreak())
	held := func(m *txlock.Mutex[pgx.Tx]) *txlock.Lock {
		lock, err := m.Lock(background)
		require.NoError(t, err)
		t.Cleanup(func() { _ = lock.Unlock(background) })
		return lock
	}
	first := held(program(t, "reader-1").Mutex("sku:42").Shared())
	second := held(program(t, "reader-2").Mutex("sku:42").Shared())
	f.wait(t, background, "sku:42")
	api := program(t, "client").Semaphore("api", 2)
	permits := []*txlock.Lock{held(api), held(api)}
	f.waitFor(t, background, f.locks.Semaphore("api", 2), "api")
	leading := lead(t, program(t, "web-3").Election("scheduler", "web-3"))
	alone := f.hold(t, "nightly")
	marking(t, f.locks.Once("order:4711"))

	b := f.open(t, "/")
	b.rows("sku:42 shared|shared|reader-1", "|shared|reader-2", "1.|waits|txlock",
		"api permits|permit 0|client", "|permit 1|client", "1.|waits|txlock",
		"scheduler leader|leads|web-3", "nightly|held|txlock", "once:order:4711 once|held|txlock")
	b.everyLook("kinds")

	b.go_(f.lockPath(t, "sku:42"))
	b.see("kind: shared, shared by 2, waiting: 1")
	holdings, err := f.locks.Inspect(background, "sku:42")
	require.NoError(t, err)
	require.Len(t, holdings[0].Readers, 2)
	for _, reader := range holdings[0].Readers {
		if reader.Application == "reader-1" {
			b.do(click(fmt.Sprintf("a.danger[href*='session=%s']", reader.ID)))
		}
	}
	b.see("End this session?")
	b.see("reader-1")
	b.do(click("button.danger"))
	b.see("was ended.")
	eventually.True(t, "the loss", func() bool { return first.Context().Err() != nil })
	require.ErrorIs(t, context.Cause(first.Context()), txlock.ErrLost)
	b.go_("/")
	b.rows("sku:42 shared|shared|reader-2", "1.|waits|txlock")
	for _, lock := range append(permits, second, alone) {
		require.NoError(t, lock.Context().Err())
	}
	require.NoError(t, leading.Err())
}

// lead leads an election until the test ends.
func lead(t *testing.T, e *txlock.Election[pgx.Tx]) (leading context.Context) {
	t.Helper()
	ctx, cancel := context.WithCancel(background)
	began, ended := make(chan context.Context, 1), make(chan struct{})
	go func() {
		defer close(ended)
		_ = e.Lead(ctx, func(ctx context.Context, _ int64) error {
			began <- ctx
			<-ctx.Done()
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	return <-began
}

// marking does what is to be done once until the test ends.
func marking(t *testing.T, o *txlock.Once[pgx.Tx]) {
	t.Helper()
	ctx, cancel := context.WithCancel(background)
	began, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = o.Do(ctx, func(ctx context.Context, _ pgx.Tx) error {
			close(began)
			<-ctx.Done()
			return ctx.Err()
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	<-began
}

// rows waits until the list begins with these: name, state and application of each session.
func (b *tab) rows(want ...string) {
	b.t.Helper()
	const cells = "[...document.querySelectorAll('table.locks tbody tr')].map(row => " +
		"[0, 1, 6].map(i => row.cells[i].textContent.trim().replace(/\\s+/g, ' ')).join('|'))"

	eventually.Every(b.t, strings.Join(want, "; "), 50*time.Millisecond, func() bool {
		got := is[[]string](b, cells)
		return len(got) >= len(want) && strings.Join(got[:len(want)], "; ") == strings.Join(want, "; ")
	})
}
