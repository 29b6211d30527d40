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
	p.mute.Store(identity["performance_schema"] == "OFF")
	p.galera.Store(isGalera(identity))
	if err := keepsToItself(ctx, q, identity); err != nil {
		return err
	}
	if err := refuse(identity); err != nil {
		return err
	}
	p.identified.Store(true)
	return nil
}

// Forget has the next call of Identify ask again: a group may have another mode now.
func (p *Pool) Forget() { p.identified.Store(false) }

// Mute says that no variable is set, because the server shows them to nobody.
func (p *Pool) Mute() bool { return p.mute.Load() }

// Galera says that the server is a node of a Galera cluster of MariaDB.
func (p *Pool) Galera() bool { return p.galera.Load() }

func isGalera(identity map[string]string) bool {
	return identity["wsrep_on"] == "ON" && provided(identity)
}

func provided(identity map[string]string) bool {
	provider := identity["wsrep_provider"]
	return provider != "" && provider != "none"
}

// keepsToItself is an error for a session of a node of Galera whose writes do not reach the other
// nodes.
func keepsToItself(ctx context.Context, q server.Querier, identity map[string]string) error {
	if identity["wsrep_on"] != "OFF" || !provided(identity) {
		return nil
	}
	global, err := server.Column(ctx, q, "SELECT @@global.wsrep_on")
	if err == nil && len(global) == 1 && global[0] == "1" {
		err = fmt.Errorf("%w: this is a node of a Galera cluster, and the session has wsrep_on = OFF: its locks would "+
			"not reach the other nodes", dialects.ErrUnsafeEngine)
	}
	return err
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
	const oneNode = "where row locks exclude the sessions of one node only"
	switch {
	case strings.Contains(identity["version"], "TiDB"):
		return fmt.Errorf("%w: this is TiDB (%s), which can lose a lock while its holder goes on to COMMIT, and "+
			"ignores FOR UPDATE in a statement with SKIP LOCKED", dialects.ErrUnsafeEngine, identity["version"])
	case strings.Contains(strings.ToLower(identity["version"]+identity["version_comment"]), "vitess"):
		return fmt.Errorf("%w: this is Vitess (%s), which ends transactions by a timer of its own, keeps no lease "+
			"(wait_timeout), and shares the server's sessions among clients", dialects.ErrUnsafeEngine,
			identity["version"])
	case identity["version_comment"] == "Dolt":
		return fmt.Errorf("%w: this is Dolt or go-mysql-server (%s), which takes FOR UPDATE and locks nothing",
			dialects.ErrUnsafeEngine, identity["version"])
	case isGalera(identity) && !strings.Contains(identity["version"], "MariaDB"):
		return fmt.Errorf("%w: this is a node of a Galera cluster of MySQL, %s: txlock knows that of MariaDB only",
			dialects.ErrUnsafeEngine, oneNode)
	case identity["group_replication_group_name"] != "" && identity["group_replication_single_primary_mode"] == "OFF":
		return fmt.Errorf("%w: this is a node of a replication group in multi-primary mode, %s",
			dialects.ErrUnsafeEngine, oneNode)
	case identity["log_bin"] == "ON" && identity["binlog_format"] == "STATEMENT":
		return server.ErrStatementLog
	}
	return nil
}
