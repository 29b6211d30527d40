package servers

import (
	"context"
	"fmt"
	"net"
)

// Client is the user as whom clients of a pair of MySQL or MariaDB connect. It is bound by
// read_only and offline_mode: root is not, on MariaDB.
const Client = "client"

// clientUser creates it, without a password.
var clientUser = []string{
	"CREATE USER IF NOT EXISTS " + Client + "@'%'",
	"GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, DROP, INDEX, ALTER, REFERENCES, LOCK TABLES, PROCESS ON *.* TO " +
		Client + "@'%'",
}

// noClients asks whether no session of a client is left.
const noClients = "SELECT COUNT(*) = 0 FROM information_schema.processlist WHERE user = '" + Client + "'"

// forever is a time limit in milliseconds that never comes. With a limit that does, a primary that
// misses its standby goes on without it, and a failover after that loses acknowledged commits.
const forever = 1 << 31

// reached is how long a standby may take to apply what it has, in seconds.
const reached = 30

// gtids are what MySQL and MariaDB have in common, in the words of each: semi-synchronous
// replication by GTIDs.
type gtids struct {
	role     string // of the primary in the names of variables: source or master
	replica  string // REPLICA or SLAVE
	status   string // the schema with the server's status
	follows  string // the statement that names the primary to a standby, with %s for the port
	position string // the query for all transactions that a server has
	reach    string // the query that waits until it has those
}

// first starts a server with nothing in it, which gets all of its data by replication.
func (g gtids) first(ctx context.Context, found programs, primary *Server, settings []string) (*Server, error) {
	standby, err := startEmpty(ctx, found, primary.Kind, settings)
	if err != nil {
		return nil, err
	}
	return standby, g.follow(ctx, standby, primary, "")
}

// startEmpty starts a server with nothing in it.
func startEmpty(ctx context.Context, found programs, kind Kind, settings []string) (*Server, error) {
	return startPrivate(ctx, inMemory(), func(folder string, port int) plan {
		standby := found.plan(folder, port, kind, Options{Settings: settings})
		standby.name += " standby"
		standby.first = statement(kind.driver(), urlOf(kind, port), "SELECT 1")
		return standby
	})
}

// opens makes a new server a primary with a database and a user for clients.
func (gtids) opens(url string) probe {
	return func(ctx context.Context) error {
		return tell(ctx, &Server{Kind: MySQL, DSN: url}, append([]string{
			"SET GLOBAL read_only = OFF", "CREATE DATABASE IF NOT EXISTS txlock",
		}, clientUser...)...)
	}
}

func (g gtids) follow(ctx context.Context, standby, primary *Server, more string) error {
	port, err := portOf(primary)
	if err != nil {
		return err
	}
	return tell(ctx, standby, fmt.Sprintf(g.follows, port)+more, "START "+g.replica)
}

func portOf(server *Server) (string, error) {
	_, port, err := net.SplitHostPort(server.Address())
	return port, err
}

func (g gtids) wait(ctx context.Context, primary, standby *Server, synchronous bool) error {
	if err := g.catchUp(ctx, standby, primary); err != nil || !synchronous {
		return err
	}
	return on(primary, func(a asks) error {
		if err := a.do(ctx, "SET GLOBAL rpl_semi_sync_"+g.role+"_enabled = ON"); err != nil {
			return err
		}
		return a.until(ctx, "SELECT COUNT(*) = 2 FROM "+g.status+".global_status WHERE VARIABLE_NAME = "+
			"'Rpl_semi_sync_"+g.role+"_status' AND VARIABLE_VALUE = 'ON' OR VARIABLE_NAME = "+
			"'Rpl_semi_sync_"+g.role+"_clients' AND VARIABLE_VALUE > 0")
	})
}

// catchUp waits until the standby has applied what its primary has.
func (g gtids) catchUp(ctx context.Context, standby, primary *Server) error {
	has, err := answerOf(ctx, primary, g.position)
	if err != nil {
		return err
	}
	return g.apply(ctx, standby, has)
}

// apply waits until the standby has applied transactions.
func (g gtids) apply(ctx context.Context, standby *Server, transactions string) error {
	late, err := answerOf(ctx, standby, g.reach, transactions, reached)
	if err == nil && late != "0" {
		err = fmt.Errorf("the standby does not follow to %s", transactions)
	}
	return err
}

// take applies all that the standby has received before it takes writes.
func (g gtids) take(ctx context.Context, standby *Server,
	received func(context.Context, *Server) (string, error),
) error {
	if err := tell(ctx, standby, "STOP "+g.replica+" IO_THREAD"); err != nil {
		return err
	}
	transactions, err := received(ctx, standby)
	if err == nil && transactions != "" {
		err = g.apply(ctx, standby, transactions)
	}
	if err != nil {
		return err
	}
	return tell(ctx, standby, "STOP "+g.replica, "RESET "+g.replica+" ALL", "SET GLOBAL read_only = OFF")
}

// alone starts a former primary, unless it runs. It waits for no standby of its own when it applies
// what it gets.
func (g gtids) alone(ctx context.Context, former *Server) error {
	if err := former.running(ctx); err != nil {
		return err
	}
	return tell(ctx, former, "SET GLOBAL rpl_semi_sync_"+g.role+"_enabled = OFF")
}
