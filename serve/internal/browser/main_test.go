// Package browser_test looks at the page in a real browser, on a real server.
package browser_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
	"github.com/txlock/txlock/internal/test/eventually"
	"github.com/txlock/txlock/internal/test/must"
	"github.com/txlock/txlock/internal/test/servers"
	"github.com/txlock/txlock/serve"
)

var (
	background = context.Background()
	database   *servers.Server
	chromium   context.Context
)

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, stop := signal.NotifyContext(background, os.Interrupt, syscall.SIGTERM)
	defer stop()
	var err error
	if database, err = servers.Start(ctx, servers.Postgres18, servers.Options{}); err != nil {
		return complain(err)
	}
	defer database.Stop()
	folder, err := os.MkdirTemp("", "txlock-browser")
	if err != nil {
		return complain(err)
	}
	defer os.RemoveAll(folder)
	browser, err := servers.Chromium(ctx, folder)
	if err != nil {
		return complain(err)
	}
	options := []chromedp.ExecAllocatorOption{
		chromedp.ExecPath(browser.Program), chromedp.Env(browser.Environment...), chromedp.Headless,
		chromedp.NoFirstRun, chromedp.UserDataDir(filepath.Join(folder, "profile")),
	}
	for _, flag := range []string{
		"no-sandbox", "disable-gpu", "disable-quic", "disable-background-networking", "disable-component-update",
		"disable-sync", "disable-dev-shm-usage",
	} {
		options = append(options, chromedp.Flag(flag, true))
	}
	all, cancel := chromedp.NewExecAllocator(ctx, options...)
	defer cancel()
	chromium, cancel = chromedp.NewContext(all)
	defer cancel()
	if err := chromedp.Do(chromium); err != nil { // starts it
		return complain(fmt.Errorf("%s does not start: %w", browser.Origin, err))
	}
	return m.Run()
}

func complain(err error) int {
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// fixture is a page of a lock table of this test alone.
type fixture struct {
	locks  *txlock.Locker[pgx.Tx]
	server *httptest.Server
	silent atomic.Bool // it answers nobody
}

func serving(t *testing.T, options ...serve.Option) *fixture {
	t.Helper()
	address := must.Get(url.Parse(database.DSN))(t)
	query := address.Query()
	query.Set("pool_max_conns", "20")
	address.RawQuery = query.Encode()
	driver := must.Get(postgres.Open(background, address.String()))(t)
	f := &fixture{locks: txlock.New(driver, txlock.WithQueue(10),
		txlock.WithTable(strings.ToLower(t.Name())+fmt.Sprint(os.Getpid())), txlock.WithSlots(8192))}
	t.Cleanup(func() { _ = f.locks.Close() }) // some tests end the server under it
	require.NoError(t, f.locks.Install(background))
	page, err := serve.New(f.locks, append([]serve.Option{
		serve.Every(time.Second), serve.Timeout(4 * time.Second), serve.Name("PostgreSQL of the tests"),
	}, options...)...)
	require.NoError(t, err)
	f.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if f.silent.Load() {
			<-r.Context().Done()
			return
		}
		page.ServeHTTP(w, r)
	}))
	t.Cleanup(func() {
		f.server.CloseClientConnections()
		f.server.Close()
	})
	return f
}

func (f *fixture) hold(t *testing.T, key string) *txlock.Lock {
	t.Helper()
	lock := must.Get(f.locks.Mutex(key).Lock(background))(t)
	t.Cleanup(func() { _ = lock.Unlock(background) })
	return lock
}

// wait begins to wait for a lock, and returns when the server says that it does.
func (f *fixture) wait(t *testing.T, key string) {
	t.Helper()
	waiters := func() (n int) {
		holdings := must.Get(f.locks.Inspect(background, key))(t)
		for _, h := range holdings {
			n += len(h.Waiters)
		}
		return n
	}
	before := waiters()
	ctx, cancel := context.WithCancel(background)
	done := make(chan struct{})
	go func() {
		defer close(done)
		if lock, err := f.locks.Mutex(key).Lock(ctx); err == nil {
			_ = lock.Unlock(background)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	eventually.True(t, "a waiter for "+key, func() bool { return waiters() > before })
}

// tab is a tab of the browser, of 1 280 by 800 in light colours.
type tab struct {
	context.Context
	t        *testing.T
	origin   string
	mu       sync.Mutex
	problems []string // what the browser complained about
}

func (f *fixture) open(t *testing.T, path string) *tab {
	t.Helper()
	ctx, cancel := chromedp.NewContext(chromium)
	t.Cleanup(cancel)
	b := &tab{Context: ctx, t: t, origin: f.server.URL}
	require.NoError(t, chromedp.Listen(ctx, func(event any) {
		switch e := event.(type) {
		case *log.EventEntryAdded:
			b.complain(e.Entry.Text + " " + e.Entry.URL)
		case *runtime.EventExceptionThrown:
			b.complain(fmt.Sprint(e.ExceptionDetails))
		case *network.EventRequestWillBeSent:
			if !strings.HasPrefix(e.Request.URL, f.server.URL+"/") {
				b.complain("a request to " + e.Request.URL)
			}
		}
	}))
	b.size(1280)
	b.go_(path)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log("the page shows: " + is[string](b, "location.href + ' ' + document.activeElement.outerHTML + ' ' + "+
				"document.body.innerText"))
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		require.Empty(t, b.problems, "what the browser complained about")
	})
	return b
}

func (b *tab) complain(what string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.problems = append(b.problems, what)
}

// forgive forgets the complaints so far that have a text.
func (b *tab) forgive(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	left := b.problems[:0]
	for _, p := range b.problems {
		if !strings.Contains(p, text) {
			left = append(left, p)
		}
	}
	b.problems = left
}

func (b *tab) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.Context, 20*time.Second)
	defer cancel()
	require.NoError(b.t, chromedp.Do(ctx, steps...))
}

func (b *tab) go_(path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(b.origin + path))
}

func call[P, R any](b *tab, command cdp.Command[P, R], parameters P) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, parameters)
		return err
	}))
}

func (b *tab) size(width int64) {
	b.t.Helper()
	b.do(chromedp.EmulateViewport(width, 800))
}

func (b *tab) scheme(name string) {
	b.t.Helper()
	call(b, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}},
	})
}

func is[T any](b *tab, expression string) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.Context, 20*time.Second)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	require.NoError(b.t, err, expression)
	return value
}

// see waits until a text is on the page.
func (b *tab) see(text string) {
	b.t.Helper()
	eventually.Every(b.t, text+" on the page", 50*time.Millisecond, func() bool {
		return strings.Contains(is[string](b, "document.body ? document.body.innerText : ''"), text)
	})
}

// until waits until an expression is true.
func (b *tab) until(expression string) {
	b.t.Helper()
	eventually.Every(b.t, expression, 50*time.Millisecond, func() bool { return is[bool](b, expression) })
}

// press presses keys.
func (b *tab) press(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys))
}

// fits checks that the page does not scroll sideways.
func (b *tab) fits() {
	b.t.Helper()
	require.LessOrEqual(b.t, is[int](b, "document.documentElement.scrollWidth"), is[int](b, "innerWidth"))
}
