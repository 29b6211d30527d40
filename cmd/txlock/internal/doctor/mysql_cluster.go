package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// lookAtReplication finds out whether the server is a replica.
func (m *mysqlServer) lookAtReplication(ctx context.Context) ([]Finding, error) {
	query, privilege := "SHOW REPLICA STATUS", "REPLICATION CLIENT"
	switch {
	case m.mariaDB:
		query, privilege = "SHOW ALL SLAVES STATUS", "SLAVE MONITOR"
	case before(m.version, [3]int{8, 0, 22}):
		query = "SHOW SLAVE STATUS"
	}
	sources, err := m.sources(ctx, query)
	if number(err) == noGlobalPrivilege {
		return one(Finding{
			Severity: Note, Found: "whether this is a replica is not visible to " + m.account,
			Why: "locks that are held on a replica exclude nobody on its source",
			Fix: statements("GRANT " + privilege + " ON *.* TO " + m.account),
		}), nil
	}
	if err != nil {
		return nil, err
	}
	if len(sources) > 0 {
		return one(Finding{
			Severity: Warning, Found: "this server is a replica of " + strings.Join(sources, ", "),
			Why: "locks that are held here exclude nobody who locks on the source",
			Fix: advice("connect to the source, and let every client of a lock use the same server"),
		}), nil
	}
	return one(Finding{Severity: OK, Found: "this server is not a replica"}), nil
}

// sources returns the servers that this one replicates from, as host:port.
func (m *mysqlServer) sources(ctx context.Context, query string) ([]string, error) {
	rows, err := m.conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var host, port sql.NullString
	row := make([]any, len(names))
	for i, name := range names {
		switch strings.ToLower(name) {
		case "source_host", "master_host":
			row[i] = &host
		case "source_port", "master_port":
			row[i] = &port
		default:
			row[i] = new(sql.RawBytes)
		}
	}
	var sources []string
	for rows.Next() {
		if err := rows.Scan(row...); err != nil {
			return nil, err
		}
		sources = append(sources, host.String+":"+port.String)
	}
	return sources, rows.Err()
}

// lookAtCluster looks for clusters in which several servers take writes: a row lock does not reach
// from one server to another.
func (m *mysqlServer) lookAtCluster(context.Context) ([]Finding, error) {
	const why = "row locks exclude the sessions of one server only; a conflict with another shows when one of both " +
		"commits, and rolls it back"
	if m.session["wsrep_on"] == "ON" || m.global["wsrep_on"] == "ON" {
		return one(Finding{
			Severity: Failure, Found: fmt.Sprintf("this is a node of Galera cluster %q, of %s",
				m.global["wsrep_cluster_name"], m.global["wsrep_cluster_address"]), Why: why,
			Fix: advice("keep locks on a server that is no node of a cluster"),
		}), nil
	}
	if group := m.global["group_replication_group_name"]; group != "" { // without a name the plugin is in no group
		if m.global["group_replication_single_primary_mode"] == "OFF" {
			return one(Finding{
				Severity: Failure, Found: "this is a member of replication group " + group + " in multi-primary mode",
				Why: why,
				Fix: statements("SELECT group_replication_switch_to_single_primary_mode()").only(
					"when all clients write to one member, which need not be this one"),
			}), nil
		}
		return m.lookAtGroup(group), nil
	}
	return one(Finding{Severity: OK, Found: "the server is in no cluster whose servers all take writes"}), nil
}

// lookAtGroup judges the settings of a group with a single primary that say what becomes of one
// whose group goes on without it.
func (m *mysqlServer) lookAtGroup(group string) []Finding {
	findings := one(Finding{
		Severity: Note, Found: "this is a member of replication group " + group + ", with a single primary",
		Why: "let every client of a lock use the primary",
	})
	const (
		majority    = "group_replication_unreachable_majority_timeout"
		consistency = "group_replication_consistency"
	)
	if m.global[majority] == "0" {
		findings = append(findings, Finding{
			Severity: Warning, Found: majority + " = 0",
			Why: "a primary that is cut off from the others never gives up: a Lock that is held there is not told " +
				"that it was lost, and others are granted there, while the group has another primary. Nothing can " +
				"be committed there, and tokens tell which came later",
			Fix: m.set(majority, "5"),
		})
	}
	if m.global[consistency] == "EVENTUAL" {
		findings = append(findings, Finding{
			Severity: Warning, Found: consistency + " = EVENTUAL",
			Why: "a new primary takes locks before it has what the former one has committed: work under a lock reads " +
				"old data, and tokens may be drawn twice",
			Fix: m.set(consistency, "'BEFORE_ON_PRIMARY_FAILOVER'"),
		})
	}
	return findings
}
