package serve

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
)

// slow is a server that takes its time.
type slow struct {
	Locks
	takes atomic.Int64 // a time.Duration
}

func (s *slow) Inspect(ctx context.Context, keys ...string) ([]txlock.Holding, error) {
	select {
	case <-time.After(time.Duration(s.takes.Load())):
		return s.Locks.Inspect(ctx, keys...)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// resting tells whether nobody looks, and no goroutine is left.
func (w *watch) resting() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return !w.running && w.viewers == 0
}

// The rate of the questions does not depend on how many look, and nobody asks while nobody looks.
func TestOneStream(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		takes time.Duration
		most  int // looks in a minute
	}{{time.Millisecond, 31}, {3 * time.Second, 11}} {
		synctest.Test(t, func(t *testing.T) {
			busy := &slow{Locks: &still{}}
			busy.takes.Store(int64(c.takes))
			locks := &counting{Locks: busy}
			w := newWatch(locks, defaultEvery, defaultLimit, nil)
			ctx, cancel := context.WithTimeout(background, time.Minute)
			defer cancel()
			var viewers sync.WaitGroup
			for range 100 {
				viewers.Go(func() {
					w.join()
					defer w.leave()
					for number := 0; ; {
						s, err := w.after(ctx, number)
						if err != nil {
							return
						}
						number = s.number
					}
				})
				viewers.Go(func() { // one who loads the page again and again
					for ctx.Err() == nil {
						_, _ = w.newest(ctx)
						time.Sleep(100 * time.Millisecond)
					}
				})
			}
			viewers.Wait()
			require.Equal(t, 1, locks.atOnce())
			require.LessOrEqual(t, locks.looks(), c.most)
			require.GreaterOrEqual(t, locks.looks(), c.most-3)
			synctest.Wait()
			time.Sleep(10 * time.Second) // the last look ends
			asked := locks.looks()
			time.Sleep(time.Hour)
			require.Equal(t, asked, locks.looks())
			require.True(t, w.resting())
		})
	}
}

// While the server does not answer, the page says since when its picture is old.
func TestTrouble(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		locks := &still{holdings: []txlock.Holding{held("sku:42", "1")}}
		silent := &slow{Locks: locks}
		w := newWatch(silent, defaultEvery, defaultLimit, nil)
		s, err := w.newest(background)
		require.NoError(t, err)
		require.Empty(t, s.trouble())
		at := s.at
		time.Sleep(time.Minute)

		silent.takes.Store(int64(time.Hour))
		begun := time.Now()
		s, _ = w.newest(background)
		require.Less(t, time.Since(begun), defaultLimit)
		require.Equal(t, "This picture is old: the server has not answered since "+clock(at)+". Still waiting for it.",
			s.trouble())
		time.Sleep(time.Minute)
		s, _ = w.newest(background)
		require.Contains(t, s.trouble(), "since "+clock(at)+". Trying again. It said: no answer within 10s")
		silent.takes.Store(0)
		time.Sleep(time.Minute)

		locks.show(nil, errDown)
		s, _ = w.newest(background)
		require.Equal(t, "This picture is old: the server has not answered since "+clock(at)+
			". Trying again. It said: the server is down", s.trouble())
		require.Len(t, s.holdings, 1)
		time.Sleep(time.Minute)

		locks.show([]txlock.Holding{held("sku:43", "1")}, nil)
		s, _ = w.newest(background)
		require.Empty(t, s.trouble())
		require.Equal(t, "sku:43", s.holdings[0].Key)
		time.Sleep(time.Minute)
	})
}

// Who begins to follow, or comes back, is not told of a picture from long ago as if it were new.
func TestOldPicture(t *testing.T) {
	t.Parallel()
	locks := &slow{Locks: &still{holdings: []txlock.Holding{held("sku:42", "1")}}}
	p := pageOf(t, locks, Every(leastEvery), Timeout(time.Second))
	_, err := p.watch.newest(background)
	require.NoError(t, err)
	until(t, "the picture is old", func() bool {
		p.watch.mu.Lock()
		defer p.watch.mu.Unlock()
		return time.Now().After(p.watch.due)
	})
	locks.takes.Store(int64(time.Hour))
	server := httptest.NewServer(p)
	defer server.Close()
	states := make(chan string, 100)
	leave := follow(t, server.URL+"/events?of=list", func(event, data string) {
		if event == "state" {
			states <- data
		}
	})
	first := <-states
	leave()
	require.Contains(t, first, "This picture is old")
	until(t, "nobody looks", p.watch.resting)
}

// A request for the headers of the events alone follows nothing.
func TestHeadersAlone(t *testing.T) {
	t.Parallel()
	p := pageOf(t, &still{}, Every(leastEvery))
	server := httptest.NewServer(p)
	defer server.Close()
	answer, err := http.Head(server.URL + "/events?of=list")
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	require.Equal(t, "text/event-stream", answer.Header.Get("Content-Type"))
	until(t, "nobody looks", p.watch.resting)
}

// follow reads the events of a view until the test ends.
func follow(t *testing.T, address string, each func(event, data string)) (leave func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(background)
	request, err := http.NewRequestWithContext(ctx, "GET", address, nil)
	require.NoError(t, err)
	answer, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	require.Equal(t, 200, answer.StatusCode)
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer answer.Body.Close()
		lines := bufio.NewScanner(answer.Body)
		lines.Buffer(nil, 1<<22)
		event, data := "", []string(nil)
		for lines.Scan() {
			line := lines.Text()
			switch {
			case strings.HasPrefix(line, "event: "):
				event, data = line[len("event: "):], nil
			case strings.HasPrefix(line, "data: "):
				data = append(data, line[len("data: "):])
			case line == "" && event != "":
				each(event, strings.Join(data, "\n"))
				event = ""
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

func TestViewersOnPostgreSQL(t *testing.T) {
	t.Parallel()
	viewersOn(t, onPostgres(t), time.Second)
}

func TestViewersOnMariaDB(t *testing.T) {
	t.Parallel()
	viewersOn(t, onMariaDB(t), defaultEvery)
}

// viewersOn lets a hundred viewers look at a real server.
func viewersOn(t *testing.T, locks Locks, every time.Duration) {
	counted := &counting{Locks: locks}
	server := httptest.NewServer(pageOf(t, counted, Every(every)))
	defer server.Close()
	var mu sync.Mutex
	seen := make([]int, 100)
	var leave []func()
	begun := time.Now()
	for i := range seen {
		leave = append(leave, follow(t, server.URL+"/events?of=list", func(event, _ string) {
			if event == "picture" {
				mu.Lock()
				seen[i]++
				mu.Unlock()
			}
		}))
	}
	until(t, "three pictures for each viewer", func() bool {
		mu.Lock()
		defer mu.Unlock()
		for _, n := range seen {
			if n < 3 {
				return false
			}
		}
		return true
	})
	looks, took := counted.looks(), time.Since(begun)
	require.LessOrEqual(t, looks, 1+int(took/every), "looks in %v", took)
	require.Equal(t, 1, counted.atOnce())
	for _, l := range leave {
		l()
	}
	until(t, "the end of the questions", func() bool {
		return server.Config.Handler.(*Page).watch.resting()
	})
}

// A viewer who does not read is dropped. The others see on.
func TestSlowViewer(t *testing.T) {
	t.Parallel()
	h := held(strings.Repeat("k", 256<<10), "1")
	p := pageOf(t, &still{holdings: []txlock.Holding{h}}, Every(leastEvery))
	p.sending = 2 * time.Second
	server := httptest.NewUnstartedServer(p)
	server.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			_ = c.(*net.TCPConn).SetWriteBuffer(4 << 10)
		}
	}
	server.Start()
	defer server.Close()
	pictures := make(chan struct{}, 100)
	leave := follow(t, server.URL+"/events?of=list", func(event, _ string) {
		if event == "picture" {
			pictures <- struct{}{}
		}
	})
	slow, err := net.Dial("tcp", server.Listener.Addr().String())
	require.NoError(t, err)
	defer slow.Close()
	require.NoError(t, slow.(*net.TCPConn).SetReadBuffer(4<<10))
	_, err = fmt.Fprintf(slow, "GET /events?of=lock&%s HTTP/1.1\r\nHost: localhost\r\n\r\n", idOf(h).query().Encode())
	require.NoError(t, err)
	viewers := func() int {
		p.watch.mu.Lock()
		defer p.watch.mu.Unlock()
		return p.watch.viewers
	}
	until(t, "both", func() bool { return viewers() == 2 })
	until(t, "the end of the slow one", func() bool { return viewers() == 1 })
	for len(pictures) > 0 {
		<-pictures
	}
	until(t, "the next picture of the other", func() bool { return len(pictures) > 0 })
	leave()
	until(t, "the end", p.watch.resting)
}
