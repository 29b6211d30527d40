package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/tier"
)

func TestOrdersOutliveTheServer(t *testing.T) {
	testbed.Lines(
		func(e *testbed.Engine, c testbed.Client[pgx.Tx]) { onMortal(t, e, c, ordersOutlive) },
		func(e *testbed.Engine, c testbed.Client[*sql.Tx]) { onMortal(t, e, c, ordersOutlive) })
}

// A server is killed again and again under the load of many callers of one Combined. What was
// acknowledged is there, nothing is there twice, and what is there without having been acknowledged
// was in a COMMIT that broke. The full tier kills 500 times, on all lines together.
func ordersOutlive[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	done := f.MakeTable(t, "id int") // not unique: what is done twice must show
	stock := testbed.NewFixture(t, e, c).MakeTable(t, "id int primary key, n int")
	f.AsAdmin(t, "INSERT INTO "+stock+" VALUES (1, 0)")
	combined := txlock.Combine(func([]int) *txlock.Mutex[Tx] { return f.Locks.Rows(stock, "id", 1) },
		func(ctx context.Context, tx Tx, in []int) ([]txlock.Result[struct{}], error) {
			rows := "(" + strings.Join(strings.Fields(strings.Trim(fmt.Sprint(in), "[]")), "), (") + ")"
			err := f.Exec(ctx, tx, fmt.Sprintf("UPDATE %s SET n = n - %d WHERE id = 1", stock, len(in)))
			if err == nil {
				err = f.Exec(ctx, tx, "INSERT INTO "+done+" VALUES "+rows)
			}
			return make([]txlock.Result[struct{}], len(in)), err
		}).AtMost(16)
	l := &load{running: make(chan struct{}), failed: make(map[int]error)}
	close(l.running)
	var callers sync.WaitGroup
	for range 48 {
		callers.Go(func() {
			l.place(func(number int) error {
				_, err := combined.Do(background, number)
				return err
			})
		})
	}
	for range tier.Pick(0, 2, 42) {
		testbed.Receive(t, l.more(rand.IntN(300)))
		l.stop()
		require.NoError(t, e.Kill())
		require.NoError(t, e.Restart(background))
		l.resume()
	}
	testbed.Receive(t, l.more(100))
	l.end()
	callers.Wait()
	back(t, e)
	l.audit(t, f.Admin, done)
	require.Equal(t, f.Total(t, "SELECT COUNT(*) FROM "+done), -f.Total(t, "SELECT n FROM "+stock))
}

// load is callers that place one order after the other, and what they were told. After an error
// they wait for the server.
type load struct {
	mu      sync.Mutex
	number  int
	ended   bool
	running chan struct{} // closed while the server runs
	done    []int         // orders that were acknowledged
	failed  map[int]error // those that were not

	goal    int // so many are to be done
	reached chan struct{}
}

func (l *load) place(order func(number int) error) {
	for number, more := l.next(); more; number, more = l.next() {
		if err := order(number); l.note(number, err) != nil {
			l.mu.Lock()
			running := l.running
			l.mu.Unlock()
			<-running
		}
	}
}

func (l *load) next() (number int, more bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.number++
	return l.number, !l.ended
}

func (l *load) note(number int, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		l.failed[number] = err
	} else if l.done = append(l.done, number); len(l.done) == l.goal {
		close(l.reached)
	}
	return err
}

// more says when so many more orders are done.
func (l *load) more(n int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.goal, l.reached = len(l.done)+n+1, make(chan struct{})
	return l.reached
}

func (l *load) stop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = make(chan struct{})
}

func (l *load) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.running)
}

func (l *load) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.ended = true
}

// audit compares what the callers were told with the table.
func (l *load) audit(t *testing.T, db *sql.DB, table string) {
	t.Helper()
	times := make(map[int]int)
	rows, err := db.Query("SELECT id FROM " + table)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var number int
		require.NoError(t, rows.Scan(&number))
		times[number]++
	}
	require.NoError(t, rows.Err())
	for _, number := range l.done {
		require.Equal(t, 1, times[number], "order %d was acknowledged", number)
	}
	unknown := 0
	for number, err := range l.failed {
		if !errors.Is(err, txlock.ErrUnknown) {
			require.Zero(t, times[number], "order %d: %v", number, err)
			continue
		}
		require.LessOrEqual(t, times[number], 1, "order %d: %v", number, err)
		unknown += times[number]
	}
	t.Logf("%d orders acknowledged, %d not, of which %d were committed", len(l.done), len(l.failed), unknown)
}
