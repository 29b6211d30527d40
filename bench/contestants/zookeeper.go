package contestants

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"

	"github.com/go-zookeeper/zk"

	"github.com/txlock/txlock/bench/contest"
)

func init() {
	contest.Register(contest.Contestant{
		Name: "go-zookeeper", Group: contest.OnZK, Server: contest.ZooKeeper, Waits: contest.Notified, Leased: true,
		Remark:  "the server raises the lease to 2 ticks at least; the session's events end the work's context",
		Parts:   contest.Standard | contest.Crowd,
		Prepare: prepareZooKeeper(zooKeeperRoot),
		Open:    openZooKeeper(func(c *zooKeeper) contest.Lock { return c.lockByLibrary }),
	})
}

func openZooKeeper(with func(*zooKeeper) contest.Lock) func(context.Context, contest.Environment) (
	contest.Client, error,
) {
	return func(ctx context.Context, env contest.Environment) (contest.Client, error) {
		session, events, err := connectZooKeeper(ctx, env)
		if err != nil {
			return nil, err
		}
		client := &zooKeeper{session: session, held: make(map[*context.CancelCauseFunc]struct{})}
		client.lock = with(client)
		go client.watch(events)
		return client, nil
	}
}

const zooKeeperRoot = "/txlock-bench"

// zooKeeper has one session for all callers: each lock is its own node below the node of its key.
// The library's lock does not report a lost session, but its events do.
type zooKeeper struct {
	session *zk.Conn
	lock    contest.Lock

	mu   sync.Mutex
	held map[*context.CancelCauseFunc]struct{} // the functions that end the contexts of work
}

var errSession = errors.New("ZooKeeper: the session is disconnected, and may have lost its locks")

// watch ends the contexts of all work when the session is disconnected. It returns when the session
// is closed.
func (c *zooKeeper) watch(events <-chan zk.Event) {
	for event := range events {
		if event.State != zk.StateDisconnected && event.State != zk.StateExpired {
			continue
		}
		c.mu.Lock()
		for end := range c.held {
			(*end)(errSession)
		}
		c.mu.Unlock()
	}
}

// own returns the context of work under a lock, and the function to call when the work is over.
func (c *zooKeeper) own(ctx context.Context) (held context.Context, release func()) {
	held, end := context.WithCancelCause(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held[&end] = struct{}{}
	return held, func() {
		c.mu.Lock()
		delete(c.held, &end)
		c.mu.Unlock()
		end(nil)
	}
}

func connectZooKeeper(ctx context.Context, env contest.Environment) (*zk.Conn, <-chan zk.Event, error) {
	session, events, err := zk.Connect([]string{env.Address()}, env.Lease, zk.WithLogger(silent{}))
	if err != nil {
		return nil, nil, fmt.Errorf("connect to ZooKeeper at %s: %w", env.Address(), err)
	}
	for {
		select {
		case event := <-events:
			if event.State == zk.StateHasSession {
				return session, events, nil
			}
		case <-ctx.Done():
			session.Close()
			return nil, nil, fmt.Errorf("connect to ZooKeeper at %s: %w", env.Address(), context.Cause(ctx))
		}
	}
}

// silent is a logger that drops the library's messages about each connection.
type silent struct{}

// Printf drops a message.
func (silent) Printf(string, ...any) {}

// prepareZooKeeper creates the node of each key. Otherwise the first lock of a key would, in four
// more round trips. Locks of an earlier run have ended with its sessions.
func prepareZooKeeper(root string) func(context.Context, contest.Environment, []string) error {
	return func(ctx context.Context, env contest.Environment, keys []string) error {
		session, _, err := connectZooKeeper(ctx, env)
		if err != nil {
			return err
		}
		defer session.Close()
		_, err = session.Create(root, nil, 0, zk.WorldACL(zk.PermAll))
		if err != nil && !errors.Is(err, zk.ErrNodeExists) {
			return fmt.Errorf("create %s: %w", root, err)
		}
		existing, _, err := session.Children(root)
		if err != nil {
			return fmt.Errorf("list %s: %w", root, err)
		}
		const atATime = 1000 // the limit on a request is 1 MB
		for some := range slices.Chunk(missingNodes(root, existing, keys), atATime) {
			if _, err := session.Multi(some...); err != nil {
				return fmt.Errorf("create the nodes of %d keys: %w", len(some), err)
			}
		}
		return nil
	}
}

// missingNodes are the requests that create the nodes of keys that do not exist.
func missingNodes(root string, existing, keys []string) (missing []any) {
	there := make(map[string]bool, len(existing))
	for _, name := range existing {
		there[root+"/"+name] = true
	}
	for _, key := range keys {
		if path := zooKeeperPath(root, key); !there[path] {
			missing = append(missing, &zk.CreateRequest{Path: path, Acl: zk.WorldACL(zk.PermAll)})
		}
	}
	return missing
}

func zooKeeperPath(root, key string) string { return root + "/" + url.PathEscape(key) }

// Hold implements contest.Client.
func (c *zooKeeper) Hold(ctx context.Context, keys []string, work contest.Work) error {
	return contest.HoldEach(ctx, keys, c.lock, work)
}

// lockByLibrary hands the wait to a goroutine when ctx ends. The goroutine unlocks as soon as it
// has locked. The library can neither give up a place in the queue, nor tell which node is its own.
func (c *zooKeeper) lockByLibrary(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	lock := zk.NewLock(c.session, zooKeeperPath(zooKeeperRoot, key), zk.WorldACL(zk.PermAll))
	locked := make(chan error, 1)
	go func() { locked <- lock.Lock() }()
	select {
	case err := <-locked:
		if err != nil {
			return nil, nil, fmt.Errorf("ZooKeeper: lock %s: %w", key, err)
		}
		held, release := c.own(ctx)
		return held, func() error {
			release()
			if err := lock.Unlock(); err != nil {
				return fmt.Errorf("ZooKeeper: unlock %s: %w", key, err)
			}
			return nil
		}, nil
	case <-ctx.Done():
		go func() {
			if <-locked == nil {
				_ = lock.Unlock() // the caller is gone
			}
		}()
		return nil, nil, fmt.Errorf("ZooKeeper: lock %s: %w", key, context.Cause(ctx))
	}
}

// Close implements contest.Client.
func (c *zooKeeper) Close() error {
	c.session.Close()
	return nil
}
