package contestants

import (
	"context"
	"net/url"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/txlock/txlock/bench/contest"
)

func init() {
	contest.Register(contest.Contestant{
		Name: "etcd election", Group: contest.OnEtcd, Server: contest.Etcd, Waits: contest.Notified, Leased: true,
		Remark:  "campaigns, works as the leader, resigns; leases as those of etcd concurrency",
		Prepare: prepareEtcd,
		Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
			return openEtcd(ctx, env, campaign)
		},
	})
}

// campaign is a lockWith: the leader of the election with the name of the key has the lock.
func campaign(ctx context.Context, session *concurrency.Session, key string) (
	context.Context, contest.Unlock, error,
) {
	election := concurrency.NewElection(session, etcdPrefix+"elections/"+url.PathEscape(key))
	if err := election.Campaign(ctx, "bench"); err != nil {
		return nil, nil, gaveUp(ctx, session, key, err)
	}
	return ctx, func() error {
		return unlockEtcd(ctx, session, key, election.Resign)
	}, nil
}
