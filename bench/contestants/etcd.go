package contestants

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/url"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.uber.org/zap"

	"github.com/txlock/txlock/bench/contest"
)

func init() {
	contest.Register(contest.Contestant{
		Name: "etcd concurrency", Group: contest.OnEtcd, Server: contest.Etcd, Waits: contest.Notified,
		Remark: "leases of whole seconds; the server raises them to 2 s at least",
		Parts:  contest.Standard, Open: openEtcd,
	})
}

// etcd has a session for each caller, on one connection. For a Mutex, two callers with the same
// session would be the same owner, and both would hold it.
type etcd struct {
	server   *clientv3.Client
	ttl      int
	sessions chan *concurrency.Session
}

var errSessionEnded = errors.New("the session ended")

func openEtcd(ctx context.Context, env contest.Environment) (contest.Client, error) {
	// The default logger would print each request that fails or is cancelled, besides the returned
	// error.
	server, err := clientv3.New(clientv3.Config{Endpoints: []string{env.Address}, Logger: zap.NewNop()})
	if err != nil {
		return nil, fmt.Errorf("connect to etcd at %s: %w", env.Address, err)
	}
	client := &etcd{
		server: server, ttl: max(1, int(math.Ceil(env.Lease.Seconds()))),
		sessions: make(chan *concurrency.Session, env.Contenders),
	}
	for range env.Contenders {
		session, err := client.newSession(ctx)
		if err != nil {
			return nil, errors.Join(err, client.Close())
		}
		client.sessions <- session
	}
	return client, nil
}

// newSession requests the lease itself. NewSession would do so without ctx.
func (c *etcd) newSession(ctx context.Context) (*concurrency.Session, error) {
	lease, err := c.server.Grant(ctx, int64(c.ttl))
	if err != nil {
		return nil, fmt.Errorf("etcd: new lease: %w", err)
	}
	return concurrency.NewSession(c.server, concurrency.WithTTL(c.ttl), concurrency.WithLease(lease.ID))
}

// Hold implements contest.Client.
func (c *etcd) Hold(ctx context.Context, keys []string, work contest.Work) error {
	session, err := c.take(ctx)
	if err != nil {
		return err
	}
	defer func() { c.sessions <- session }()
	held, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(session.Ctx(), func() { end(errSessionEnded) })()
	return contest.HoldEach(held, keys, func(ctx context.Context, key string) (context.Context, contest.Unlock, error) {
		return lockEtcd(ctx, session, key)
	}, work)
}

// take waits for an unused session, and replaces it if it has ended.
func (c *etcd) take(ctx context.Context) (*concurrency.Session, error) {
	select {
	case session := <-c.sessions:
		if session.Ctx().Err() == nil {
			return session, nil
		}
		fresh, err := c.newSession(ctx)
		if err != nil {
			c.sessions <- session
		}
		return fresh, err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func lockEtcd(ctx context.Context, session *concurrency.Session, key string) (context.Context, contest.Unlock, error) {
	mutex := concurrency.NewMutex(session, "txlock-bench/"+url.PathEscape(key))
	if err := mutex.Lock(ctx); err != nil {
		// A cancelled request may have left a key in the queue, where it would stay as long as the
		// session. A lease that cannot be revoked ends by itself.
		_ = session.Close()
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, nil, fmt.Errorf("etcd: lock %s: %w", key, err)
	}
	return ctx, func() error { return unlockEtcd(ctx, session, key, mutex) }, nil
}

// unlockEtcd reports that the session has ended. The library's unlock does not, because deleting a
// missing key is no error.
func unlockEtcd(ctx context.Context, session *concurrency.Session, key string, mutex *concurrency.Mutex) error {
	ended := session.Ctx().Err() != nil
	ctx, cancel := contest.Unlocking(ctx)
	defer cancel()
	err := mutex.Unlock(ctx)
	if err != nil {
		_ = session.Close()
	} else if ended {
		err = errSessionEnded
	}
	if err != nil {
		return fmt.Errorf("etcd: unlock %s: %w", key, err)
	}
	return nil
}

// Close implements contest.Client.
func (c *etcd) Close() error {
	var group sync.WaitGroup // in parallel: a silent server then costs one time limit, not one for each session
	for len(c.sessions) > 0 {
		session := <-c.sessions
		group.Go(func() { _ = session.Close() })
	}
	group.Wait()
	return c.server.Close()
}
