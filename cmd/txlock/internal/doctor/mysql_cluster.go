package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"
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
		return one(m.lookAtGalera(why)), nil
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

// appliers is how many threads of a node apply what others have written. The default is 1.
const appliers = "wsrep_slave_threads"

// lookAtGalera says what of txlock works on a node of Galera.
func (m *mysqlServer) lookAtGalera(why string) Finding {
	found := Finding{
		Severity: Note, Found: fmt.Sprintf("this is a node of Galera cluster %q, of %s",
			m.global["wsrep_cluster_name"], m.global["wsrep_cluster_address"]),
		Why: "locks reach all nodes; Shared, Semaphore and Rows are refused. The " +
			"holder of a Lock on a node that is cut off is told in time only with a lease below evs.suspect_timeout",
	}
	_, suspect, _ := strings.Cut(m.global["wsrep_provider_options"], "evs.suspect_timeout = ")
	if suspect, _, known := strings.Cut(suspect, ";"); known {
		found.Why += ", here " + suspect
	}
	switch {
	case !strings.Contains(m.global["version"], "MariaDB"):
		found.Severity, found.Why = Failure, why
		found.Fix = advice("keep locks on a Galera cluster of MariaDB, or on a server that is no node of a cluster")
	case m.session["wsrep_on"] != "ON":
		found.Severity, found.Why = Failure, "the session has wsrep_on = OFF, and keeps its writes from the other nodes"
		found.Fix = advice("leave wsrep_on = ON in the sessions of txlock's user")
	case m.global[appliers] != "1":
		found.Severity, found.Found = Warning, appliers+" = "+m.global[appliers]+": "+found.Found
		found.Why = "where another node writes a row that a session has locked, or changed, beside its locks, this " +
			"node may hang until it is killed: one applier waits for the row, and the end of the session for " +
			"another applier that waits for the first. " + found.Why
		found.Fix = m.set(appliers, "1")
	}
	return found
}

// What a member of a group does when others are gone.
const (
	majority    = "group_replication_unreachable_majority_timeout"
	consistency = "group_replication_consistency"
	expel       = "group_replication_member_expel_timeout"
)

// lookAtGroup judges the settings of a group with a single primary that say what becomes of one
// whose group goes on without it.
func (m *mysqlServer) lookAtGroup(group string) []Finding {
	findings := one(Finding{
		Severity: Note, Found: "this is a member of replication group " + group + ", with a single primary",
		Why: "let every client of a lock use the primary",
	})
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

// lookAtMembers compares the settings with those of the other members of a group, of which each may
// be the next primary. The group lets these differ. They are asked as the same user, at the
// addresses that the group knows.
func (m *mysqlServer) lookAtMembers(ctx context.Context) (findings []Finding, err error) {
	if m.global["group_replication_group_name"] == "" {
		return nil, nil
	}
	const why = "after a change of primary, the settings of the new one count"
	addresses, err := m.texts(ctx, "SELECT CONCAT(MEMBER_HOST, ':', MEMBER_PORT) FROM "+
		"performance_schema.replication_group_members WHERE MEMBER_ID <> @@server_uuid ORDER BY 1")
	if number(err) == noTablePrivilege {
		return one(Finding{
			Severity: Note, Found: "the other members of the group are not visible to " + m.account, Why: why,
			Fix: statements("GRANT SELECT ON performance_schema.replication_group_members TO " + m.account),
		}), nil
	}
	if err != nil {
		return nil, err
	}
	for _, address := range addresses {
		other, err := m.settingsAt(ctx, address)
		if err != nil {
			findings = append(findings, Finding{
				Severity: Note, Found: fmt.Sprintf("member %s did not tell its settings: %v", address, err), Why: why,
				Fix: advice("run txlock doctor on it, too"),
			})
			continue
		}
		for _, name := range []string{majority, consistency, expel} {
			if other[name] != m.global[name] {
				findings = append(findings, Finding{
					Severity: Warning, Why: why,
					Found: fmt.Sprintf("%s = %s here, and %s on member %s", name, m.global[name], other[name], address),
					Fix:   advice("give it the same value on all members, with SET PERSIST"),
				})
			}
		}
	}
	if len(findings) == 0 {
		findings = one(Finding{Severity: OK, Found: "the other members of the group have the same settings"})
	}
	return findings, nil
}

// settingsAt returns the variables of another server, as the same user sees them.
func (m *mysqlServer) settingsAt(ctx context.Context, address string) (map[string]string, error) {
	other := mysqlServer{config: m.config.Clone(), greeting: &greeting{}}
	other.config.Net, other.config.Addr, other.config.Timeout = "tcp", address, 2*time.Second
	db, err := other.open()
	if err != nil {
		return nil, err
	}
	defer db.Close()
	if other.conn, err = other.connect(ctx, db); err != nil {
		return nil, err
	}
	defer other.conn.Close()
	return other.variables(ctx, "SHOW GLOBAL VARIABLES LIKE 'group\\_replication\\_%'")
}
