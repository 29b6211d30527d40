package doctor

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"sync"
)

// replication finds out whether the server is a replica.
func (m *mysqlServer) replication(ctx context.Context, r report) (fine string, err error) {
	query, privilege := "SHOW REPLICA STATUS", "REPLICATION CLIENT"
	switch {
	case m.mariaDB:
		query, privilege = "SHOW ALL SLAVES STATUS", "SLAVE MONITOR"
	case before(m.version, [3]int{8, 0, 22}):
		query = "SHOW SLAVE STATUS"
	}
	replica, err := m.any(ctx, query)
	switch {
	case number(err) == noGlobalPrivilege:
		r.note("whether this is a replica is not visible to "+m.account,
			"locks that are held on a replica exclude nobody on its source",
			statements("GRANT "+privilege+" ON *.* TO "+m.account))
		err = nil
	case replica:
		r.warn("this server is a replica", "locks that are held here exclude nobody who locks on the source",
			advice("connect to the source, and let every client of a lock use the same server"))
	}
	return "this server is not a replica", err
}

// any tells whether a query has rows, whatever their columns.
func (m *mysqlServer) any(ctx context.Context, query string) (bool, error) {
	rows, err := m.conn.QueryContext(ctx, query)
	if err != nil {
		return false, err
	}
	defer rows.Close()
	return rows.Next(), rows.Err()
}

// cluster looks for clusters in which several servers take writes: a row lock does not reach from
// one server to another.
func (m *mysqlServer) cluster(_ context.Context, r report) (fine string, err error) {
	const why = "row locks exclude the sessions of one server only; a conflict with another shows when one of both " +
		"commits, and rolls it back"
	group := m.global["group_replication_group_name"] // without a name the plugin is in no group
	switch {
	case m.session["wsrep_on"] == "ON" || m.global["wsrep_on"] == "ON":
		m.galera(r, why)
	case group != "" && m.global["group_replication_single_primary_mode"] == "OFF":
		r.fails("this is a member of replication group "+group+" in multi-primary mode", why,
			statements("SELECT group_replication_switch_to_single_primary_mode()").only(
				"when all clients write to one member, which need not be this one"))
	case group != "":
		m.group(r, group)
	}
	return "the server is in no cluster whose servers all take writes", nil
}

// appliers is how many threads of a node apply what others have written. The default is 1.
const appliers = "wsrep_slave_threads"

// galera says what of txlock works on a node of Galera.
func (m *mysqlServer) galera(r report, ofMySQL string) {
	found := fmt.Sprintf("this is a node of Galera cluster %q, of %s", m.global["wsrep_cluster_name"],
		m.global["wsrep_cluster_address"])
	why := "locks reach all nodes; Shared, Semaphore and Rows are refused. The holder of a Lock on a node that is " +
		"cut off is told in time only with a lease below evs.suspect_timeout"
	_, suspect, _ := strings.Cut(m.global["wsrep_provider_options"], "evs.suspect_timeout = ")
	if suspect, _, known := strings.Cut(suspect, ";"); known {
		why += ", here " + suspect
	}
	switch {
	case !strings.Contains(m.global["version"], "MariaDB"):
		r.fails(found, ofMySQL,
			advice("keep locks on a Galera cluster of MariaDB, or on a server that is no node of a cluster"))
	case m.session["wsrep_on"] != "ON":
		r.fails(found, "the session has wsrep_on = OFF, and keeps its writes from the other nodes",
			advice("leave wsrep_on = ON in the sessions of txlock's user"))
	case m.global[appliers] != "1":
		r.warn(appliers+" = "+m.global[appliers]+": "+found, "where another node writes a row that a session has "+
			"locked, or changed, beside its locks, this node may hang until it is killed: one applier waits for the "+
			"row, and the end of the session for another applier that waits for the first. "+why, m.set(appliers, "1"))
	default:
		r.note(found, why, Fix{})
	}
}

// group judges the settings of a group with a single primary that say what becomes of one whose
// group goes on without it.
func (m *mysqlServer) group(r report, name string) {
	r.note("this is a member of replication group "+name+", with a single primary",
		"let every client of a lock use the primary; after a change of primary, the settings of the new one count",
		advice("run txlock doctor on the other members, too"))
	const majority, consistency = "group_replication_unreachable_majority_timeout", "group_replication_consistency"
	if m.global[majority] == "0" {
		r.warn(majority+" = 0", "a primary that is cut off from the others never gives up: a Lock that is held there "+
			"is not told that it was lost, and others are granted there, while the group has another primary. "+
			"Nothing can be committed there, and tokens tell which came later", m.set(majority, "5"))
	}
	if m.global[consistency] == "EVENTUAL" {
		r.warn(consistency+" = EVENTUAL", "a new primary takes locks before it has what the former one has "+
			"committed: work under a lock reads old data, and tokens may be drawn twice",
			m.set(consistency, "'BEFORE_ON_PRIMARY_FAILOVER'"))
	}
}

// greeting is the first packet that a client receives. It holds the version and the number of the
// connection (MySQL internals, "Protocol::HandshakeV10").
type greeting struct {
	mu   sync.Mutex
	text []byte
}

// dial connects as the driver does, and records the greeting.
func (g *greeting) dial(ctx context.Context, network, address string) (net.Conn, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &greeted{Conn: conn, greeting: g}, nil
}

type greeted struct {
	net.Conn
	greeting *greeting
}

// Read implements io.Reader.
func (c *greeted) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.greeting.mu.Lock()
	defer c.greeting.mu.Unlock()
	const enough = 256 // bytes, for the fields that are read
	if have := len(c.greeting.text); have < enough {
		c.greeting.text = append(c.greeting.text, p[:min(n, enough-have)]...)
	}
	return n, err
}

// connection returns the connection's number in the greeting, and the version of the greeter.
func (g *greeting) connection() (number uint32, version string, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	const header, protocol = 4, 10
	if len(g.text) < header+1 || g.text[header] != protocol {
		return 0, "", fmt.Errorf("a greeting of another protocol: % x", g.text)
	}
	rest := g.text[header+1:]
	end := bytes.IndexByte(rest, 0)
	if end < 0 || len(rest) < end+5 {
		return 0, "", fmt.Errorf("a greeting that is too short: % x", g.text)
	}
	return binary.LittleEndian.Uint32(rest[end+1:]), string(rest[:end]), nil
}

// proxy compares the connection's number in the greeting with the number of the session that
// answers. A proxy that speaks the protocol numbers its clients itself. A proxy that only forwards
// bytes is not found, and does no harm. The sum keeps a proxy from answering the query instead of
// the server.
func (m *mysqlServer) proxy(ctx context.Context, r report) (fine string, err error) {
	var answering uint64
	if err := m.conn.QueryRowContext(ctx, "SELECT CONNECTION_ID() + 0").Scan(&answering); err != nil {
		return "", err
	}
	greeted, version, err := m.greeting.connection()
	if err == nil && greeted != uint32(answering) {
		r.warn(fmt.Sprintf("a proxy is in between: it greets as %q and calls connection %d what is %d on the server",
			version, greeted, answering), "txlock is not tested through ProxySQL, MaxScale or the like: they may send "+
			"statements of one session to several servers, and the KILL QUERY that ends a cancelled wait to the "+
			"wrong one",
			advice("connect to the primary server itself"))
	}
	return "none: the server itself answers", err
}
