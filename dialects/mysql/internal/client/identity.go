package client

import (
	"context"
	"fmt"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

// identitySQL asks who the server is, with what else is known once. A server leaves out the
// variables that it does not have.
const identitySQL = "SHOW VARIABLES WHERE Variable_name IN (" +
	"'version', 'version_comment', 'performance_schema', 'log_bin', 'binlog_format', 'wsrep_on', " +
	"'wsrep_provider', 'group_replication_group_name', 'group_replication_single_primary_mode')"

// Identify refuses a server that is known not to exclude. It asks until one was not refused, and
// then no more: all servers of a pool are alike. It comes before the first lock, on the connection
// of that lock.
func (p *Pool) Identify(ctx context.Context, q server.Querier) error {
	if p.identified.Load() {
		return nil
	}
	identity, err := identityOf(ctx, q)
	if err != nil { // without an answer, a lock on Galera would be one of its node alone
		return err
	}
	p.Mute.Store(identity["performance_schema"] == "OFF")
	p.Galera.Store(isGalera(identity))
	if err = refuse(identity); err == nil {
		p.identified.Store(true)
	}
	return err
}

// Forget has the next call of Identify ask again: a group may have another mode now.
func (p *Pool) Forget() { p.identified.Store(false) }

func isGalera(identity map[string]string) bool {
	return identity["wsrep_on"] == "ON" && provided(identity)
}

func provided(identity map[string]string) bool {
	provider := identity["wsrep_provider"]
	return provider != "" && provider != "none"
}

// identityOf is what the server answers. One that does not take the question is an unknown one. A
// question that came in a bad moment, as in a transaction that another has ended, has no answer.
func identityOf(ctx context.Context, q server.Querier) (map[string]string, error) {
	lines, err := server.Grid(ctx, q, identitySQL)
	if server.Interrupted(err) { // once, by what was meant for the statement before
		lines, err = server.Grid(ctx, q, identitySQL)
	}
	if err != nil && (server.Number(err) == 0 || server.Passing(err)) {
		return nil, err
	}
	identity := map[string]string{}
	for _, line := range lines {
		identity[line[0]] = line[1]
	}
	if identity["wsrep_on"] == "OFF" && provided(identity) {
		global, err := server.Column(ctx, q, "SELECT @@global.wsrep_on")
		if err != nil {
			return nil, err
		}
		identity["global.wsrep_on"] = strings.Join(global, "")
	}
	return identity, nil
}

// refuse is an error for a server that is known not to exclude. What may exclude, or fails where it
// does not, is left to the proof of Check.
//
// TiDB keeps locks in memory alone, and loses them when a store fails or after an hour, and COMMIT
// goes on (pingcap/tidb#66571). It ignores FOR UPDATE in a statement with SKIP LOCKED
// (pingcap/tidb#69720). Vitess is a proxy whose clients share sessions: it ignores wait_timeout, so
// no lock has a lease, ends transactions by a timer, and a KILL QUERY may hit another client.
// Dolt, and go-mysql-server below it, take FOR UPDATE and lock nothing. In a cluster whose nodes
// all take writes, row locks do not reach the other nodes. A binary log of statements alone would
// take REPEATABLE READ, at which work may read what is older than its second lock.
func refuse(identity map[string]string) error {
	const oneNode = ", where row locks exclude the sessions of one node only"
	version, what := identity["version"], ""
	switch {
	case strings.Contains(version, "TiDB"):
		what = "TiDB, which can lose a lock while its holder goes on to COMMIT, and ignores FOR UPDATE in a statement " +
			"with SKIP LOCKED"
	case strings.Contains(strings.ToLower(version+identity["version_comment"]), "vitess"):
		what = "Vitess, which ends transactions by a timer of its own, keeps no lease (wait_timeout), and shares the " +
			"server's sessions among clients"
	case identity["version_comment"] == "Dolt":
		what = "Dolt or go-mysql-server, which takes FOR UPDATE and locks nothing"
	case isGalera(identity) && !strings.Contains(version, "MariaDB"):
		what = "a node of a Galera cluster of MySQL" + oneNode + ": txlock knows that of MariaDB only"
	case identity["global.wsrep_on"] == "1":
		what = "a node of a Galera cluster, and the session has wsrep_on = OFF: its locks would not reach the other nodes"
	case identity["group_replication_group_name"] != "" && identity["group_replication_single_primary_mode"] == "OFF":
		what = "a node of a replication group in multi-primary mode" + oneNode
	case identity["log_bin"] == "ON" && identity["binlog_format"] == "STATEMENT":
		return server.ErrStatementLog
	default:
		return nil
	}
	return fmt.Errorf("%w: this is %s (version %s)", dialects.ErrUnsafeEngine, what, version)
}
