package contestants

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-zookeeper/zk"

	"github.com/txlock/txlock/bench/contest"
)

const zooKeeperSharedRoot = "/txlock-bench-shared"

func init() {
	contest.Register(contest.Contestant{
		Name: "read-write recipe", Group: contest.OnZK, Server: contest.ZooKeeper, Waits: contest.Notified,
		Leased:  true,
		Remark:  "the write lock of ZooKeeper's recipe for shared locks, by hand; the library has none",
		Prepare: prepareZooKeeper(zooKeeperSharedRoot),
		Open:    openZooKeeper(func(c *zooKeeper) contest.Lock { return c.lockToWrite }),
	})
}

// lockToWrite takes a place in the key's queue, and waits for the one before it, be that a reader's
// or a writer's. A reader would wait for the last writer before it.
func (c *zooKeeper) lockToWrite(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
	queue := zooKeeperPath(zooKeeperSharedRoot, key)
	place, err := c.session.CreateProtectedEphemeralSequential(queue+"/write-", nil, zk.WorldACL(zk.PermAll))
	if err != nil {
		return nil, nil, fmt.Errorf("ZooKeeper: queue for %s: %w", key, err)
	}
	leave := func() error {
		if err := c.session.Delete(place, -1); err != nil {
			return fmt.Errorf("ZooKeeper: unlock %s: %w", key, err)
		}
		return nil
	}
	if err := c.awaitTurn(ctx, queue, place); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("ZooKeeper: lock %s: %w", key, err), leave())
	}
	held, release := c.own(ctx)
	return held, func() error {
		release()
		return leave()
	}, nil
}

// awaitTurn returns when no place is before this one.
func (c *zooKeeper) awaitTurn(ctx context.Context, queue, place string) error {
	for {
		names, _, err := c.session.Children(queue)
		if err != nil {
			return err
		}
		before := ""
		for _, name := range names {
			if turn(name) < turn(place) && (before == "" || turn(name) > turn(before)) {
				before = name
			}
		}
		if before == "" {
			return nil
		}
		_, _, gone, err := c.session.GetW(queue + "/" + before)
		if errors.Is(err, zk.ErrNoNode) {
			continue
		}
		if err != nil {
			return err
		}
		select {
		case event := <-gone:
			if event.Err != nil {
				return event.Err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// turn is the number that ZooKeeper appends to a node's name: ten digits, the same for readers and
// writers.
func turn(name string) string { return name[max(0, len(name)-10):] }
