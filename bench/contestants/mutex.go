package contestants

import (
	"context"
	"sync"

	"github.com/txlock/txlock/bench/contest"
)

func init() {
	contest.Register(contest.Contestant{
		Name: "sync.Mutex", Group: contest.InProcess, Server: contest.PostgreSQL, Waits: contest.Notified,
		Parts:   contest.Crowd | contest.HotRow,
		Remark:  "excludes in one process only: the limit of what a lock can do there",
		Prepare: nothing,
		Open: func(context.Context, contest.Environment) (contest.Client, error) {
			return &mutexes{locks: make(map[string]*sync.Mutex)}, nil
		},
	})
}

// mutexes is a mutex for each key.
type mutexes struct {
	mu    sync.Mutex // guards locks
	locks map[string]*sync.Mutex
}

// Hold implements contest.Client. Only the next holder looks at ctx: a wait for a mutex cannot be
// ended.
func (m *mutexes) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, func(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
		lock := m.of(key)
		lock.Lock()
		if ctx.Err() != nil {
			lock.Unlock()
			return nil, nil, context.Cause(ctx)
		}
		return ctx, func() error {
			lock.Unlock()
			return nil
		}, nil
	}, work)
}

func (m *mutexes) of(key string) *sync.Mutex {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locks[key] == nil {
		m.locks[key] = new(sync.Mutex)
	}
	return m.locks[key]
}

// Close implements contest.Client.
func (m *mutexes) Close() error { return nil }
