package measure

import (
	"context"
	"time"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/crew"
	"github.com/txlock/txlock/bench/database"
	"github.com/txlock/txlock/bench/results"
)

// The keys of a crowd: the one that all want, and the free one.
var hotKey, freeKey = crew.Key(1), crew.Key(2)

// MeasureCrowds measures one process with more callers of one key than it has connections: what
// becomes of the caller of another key, how many sessions the callers take at the server, and how
// often they get their key.
func (l *Lab) MeasureCrowds(ctx context.Context) (err error) {
	var all []results.Crowd
	for _, c := range l.in(contest.Crowd) {
		for _, callers := range l.Crowds.Callers {
			all = append(all, results.Crowd{Contestant: c.Name, Callers: callers})
		}
	}
	l.run.Crowds, err = fill(ctx, l, "crowds", l.Crowds.Rounds, all,
		func(c *results.Crowd) (string, *[]results.CrowdRound) { return c.Contestant, &c.Rounds }, l.crowd)
	return err
}

// crowd measures one contestant once.
func (l *Lab) crowd(ctx context.Context, c contest.Contestant, crowd results.Crowd) (
	round results.CrowdRound, err error,
) {
	job := crew.Crowd{
		Entrant: l.entrant(c, lease, l.Crowds.Connections), Callers: crowd.Callers, Key: hotKey, Free: freeKey,
		Hold: l.Crowds.Hold, Board: l.board.Path(),
	}
	db, err := job.Entrant.Books.Open(ctx, 1)
	if err != nil {
		return round, err
	}
	defer db.Close()
	l.board.Clear()
	reports, err := l.crew.Run(ctx, []crew.Job{{Crowd: &job}}, func() {
		crew.Wait(ctx, crew.Settle)
		watched, stop := context.WithCancel(ctx)
		busy := make(chan int, 1)
		go func() { busy <- watchSessions(watched, c.Server, db) }()
		l.await(ctx, l.Crowds.Window)
		stop()
		round.Busy = <-busy
	})
	if err != nil {
		return round, err
	}
	l.failed(c, "crowds", reports[0])
	found := reports[0].Crowded
	round.Took, round.Hot, round.Cut, round.Overlaps = found.Took, found.Hot, found.Cut, found.Overlaps
	round.FreeP50 = time.Duration(results.Quantile(found.Free, 0.5))
	round.FreeP99 = time.Duration(results.Quantile(found.Free, 0.99))
	round.Failed = reports[0].Failed
	return round, nil
}

// A session is busy in a transaction, while it runs a statement, and as long as it has an advisory
// lock. The holder of a GET_LOCK that runs nothing cannot be told from an idle session.
const (
	busyOnPostgres = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> " +
		"pg_backend_pid() AND (xact_start IS NOT NULL OR pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory'))"
	busyOnMySQL = "SELECT count(*) FROM information_schema.processlist WHERE id <> connection_id() AND user NOT IN " +
		"('system user', 'event_scheduler') AND (command = 'Query' OR id IN (SELECT trx_mysql_thread_id FROM " +
		"information_schema.innodb_trx))"
)

// watchSessions is the largest number of busy sessions that it saw until ctx ended.
func watchSessions(ctx context.Context, server contest.Server, db *database.Database) (most int) {
	query := busyOnMySQL
	if server == contest.PostgreSQL {
		query = busyOnPostgres
	}
	for ctx.Err() == nil {
		busy, err := db.Number(ctx, nil, query)
		if err != nil {
			return most
		}
		most = max(most, int(busy))
		crew.Wait(ctx, 120*time.Millisecond) // InnoDB's list of transactions is up to 100 ms old
	}
	return most
}
