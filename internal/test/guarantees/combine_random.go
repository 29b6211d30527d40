package guarantees

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/guarantees/testbed"
	"github.com/txlock/txlock/internal/test/tier"
)

// How an order of CombinedFailures fails.
const (
	succeeds = iota
	refused  // by its Result
	spoils   // its batch, by an error of work
	twice    // breaks a unique key
	rowless  // names a row that does not exist
	leaves   // or is done before
	ways
)

var (
	errRefused = errors.New("refused")
	errSpoilt  = errors.New("spoilt")
)

// randomOrder is an order of CombinedFailures. Its number is 1 or larger.
type randomOrder struct{ number, way int }

// CombinedFailures shows that of many orders that fail at random each caller has the outcome of its
// own, and that the books are right. The full tier has 100 000 of them, on all lines together.
func CombinedFailures[Tx any](t *testing.T, e *testbed.Engine, c testbed.Client[Tx]) {
	f := testbed.NewFixture(t, e, c)
	done := f.MakeTable(t, "id int primary key")
	stock := testbed.NewFixture(t, e, c).MakeTable(t, "id int primary key, n int")
	f.AsAdmin(t, "INSERT INTO "+done+" VALUES (0)")
	f.AsAdmin(t, "INSERT INTO "+stock+" VALUES (1, 0)")
	combined := txlock.Combine(func(in []randomOrder) *txlock.Mutex[Tx] {
		rows := []any{1}
		if slices.ContainsFunc(in, func(o randomOrder) bool { return o.way == rowless }) {
			rows = append(rows, 2)
		}
		return f.Locks.Rows(stock, "id", rows...)
	}, func(ctx context.Context, tx Tx, in []randomOrder) ([]txlock.Result[int], error) {
		return workAtRandom(ctx, f, tx, done, stock, in)
	}).AtMost(32)

	const callers = 64
	failures := int64(tier.Pick(250, 500, 8_000))
	var number, failed atomic.Int64
	var mu sync.Mutex
	var acknowledged []int
	var all sync.WaitGroup
	for caller := range callers {
		random := rand.New(rand.NewPCG(13, uint64(caller)))
		all.Go(func() {
			for failed.Load() < failures {
				o := randomOrder{int(number.Add(1)), random.IntN(ways)}
				ok, err := placeAtRandom(combined, random, o)
				if err != nil {
					t.Errorf("order %+v: %v", o, err)
				}
				if !ok {
					failed.Add(1)
					continue
				}
				mu.Lock()
				acknowledged = append(acknowledged, o.number)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	o := orders[Tx]{Fixture: f, table: done}
	slices.Sort(acknowledged)
	require.Equal(t, acknowledged, o.committed(t)[1:])
	require.Equal(t, -len(acknowledged), f.Total(t, "SELECT n FROM "+stock))
}

// placeAtRandom places an order, and tells whether it was done. The error says that its outcome is
// wrong.
func placeAtRandom[Tx any](c *txlock.Combined[Tx, randomOrder, int], random *rand.Rand, o randomOrder) (
	ok bool, wrong error,
) {
	ctx, cancel := context.WithCancel(background)
	defer cancel()
	if o.way == leaves {
		go func(patience int) {
			for range patience {
				runtime.Gosched()
			}
			cancel()
		}(random.IntN(2000))
	}
	value, err := c.Do(ctx, o)
	expected := map[int]error{
		refused: errRefused, spoils: errSpoilt, twice: err, rowless: txlock.ErrNoRow, leaves: context.Canceled,
	}[o.way]
	switch {
	case err == nil && value == o.number && (o.way == succeeds || o.way == leaves):
		return true, nil
	case err == nil || o.way == succeeds || !errors.Is(err, expected) || value != 0:
		return false, fmt.Errorf("the outcome is %d, %w", value, err)
	}
	return false, nil
}

func workAtRandom[Tx any](ctx context.Context, f *testbed.Fixture[Tx], tx Tx, done, stock string, in []randomOrder) (
	[]txlock.Result[int], error,
) {
	results, rows := make([]txlock.Result[int], len(in)), []string(nil)
	for i, o := range in {
		row := o.number
		switch o.way {
		case spoils:
			return nil, errSpoilt
		case refused:
			results[i].Err = errRefused
			continue
		case twice:
			row = 0 // which is there
		}
		results[i].Value = o.number
		rows = append(rows, fmt.Sprintf("(%d)", row))
	}
	if rows == nil {
		return results, nil
	}
	err := f.Exec(ctx, tx, fmt.Sprintf("UPDATE %s SET n = n - %d WHERE id = 1", stock, len(rows)))
	if err == nil {
		err = f.Exec(ctx, tx, "INSERT INTO "+done+" VALUES "+strings.Join(rows, ", "))
	}
	return results, err
}
