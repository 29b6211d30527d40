package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/go-sql-driver/mysql"
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

// mysqlReplication is that of MySQL.
type mysqlReplication struct{ gtids }

var ofMySQL = mysqlReplication{gtids{
	role: "source", replica: "REPLICA", status: "performance_schema",
	follows: "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = %s, SOURCE_USER = 'root', " +
		"SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1",
	position: "SELECT @@GLOBAL.gtid_executed", reach: "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, ?)",
}}

// A server starts read only, so that a primary that crashed does not come back as a second one.
func (mysqlReplication) settings(number int) []string {
	return []string{
		"--server-id=" + strconv.Itoa(number), "--log-bin=binlog", "--gtid-mode=ON", "--enforce-gtid-consistency=ON",
		"--sync-binlog=0", "--relay-log-recovery=ON", "--super-read-only=ON",
		"--plugin-load-add=semisync_source.so;semisync_replica.so;mysql_clone.so",
		"--loose-rpl-semi-sync-source-wait-point=AFTER_SYNC",
		"--loose-rpl-semi-sync-source-timeout=" + strconv.Itoa(forever),
		"--loose-rpl-semi-sync-replica-enabled=ON",
	}
}

func (mysqlReplication) leads() string { return "SELECT NOT @@read_only AND NOT @@offline_mode" }

// demote ends the clients' sessions first. read_only ends none: those that hold locks would go on
// holding them on a server that is no longer the primary. Also, it waits until no statement waits
// for a row, and keeps all new ones waiting meanwhile. A session that is told to end may go on for
// a moment, and be granted what another has left: so demote waits until all are gone.
func (r mysqlReplication) demote(ctx context.Context, primary, standby *Server) error {
	err := on(primary, func(a asks) error {
		if err := a.do(ctx, "SET GLOBAL offline_mode = ON", "SET GLOBAL super_read_only = ON"); err != nil {
			return err
		}
		return a.until(ctx, noClients)
	})
	if err != nil {
		return err
	}
	return r.catchUp(ctx, standby, primary)
}

func (r mysqlReplication) promote(ctx context.Context, standby *Server) error {
	return r.take(ctx, standby, func(ctx context.Context, standby *Server) (string, error) {
		return answerOf(ctx, standby, "SELECT COALESCE(MAX(RECEIVED_TRANSACTION_SET), '') FROM "+
			"performance_schema.replication_connection_status")
	})
}

// rejoin replaces the data of a former primary that has a transaction which the new one never got.
// A semi-synchronous primary that crashed while a commit waited for the standby has it in its
// binary log, and commits it when it starts.
func (r mysqlReplication) rejoin(ctx context.Context, former, primary *Server) error {
	if err := r.alone(ctx, former); err != nil {
		return err
	}
	mine, err := answerOf(ctx, former, r.position)
	if err != nil {
		return err
	}
	errant, err := answerOf(ctx, primary, "SELECT GTID_SUBTRACT(?, @@GLOBAL.gtid_executed)", mine)
	if err == nil && errant != "" {
		err = r.clone(ctx, former, primary)
	}
	if err == nil {
		err = r.follow(ctx, former, primary, "")
	}
	if err != nil {
		return err
	}
	return tell(ctx, former, "SET GLOBAL offline_mode = OFF")
}

// clone copies the primary over the data of a server, which then ends: nobody supervises it.
func (mysqlReplication) clone(ctx context.Context, standby, primary *Server) error {
	port, err := portOf(primary)
	if err != nil {
		return err
	}
	err = tell(ctx, standby, "SET GLOBAL read_only = OFF", "SET GLOBAL clone_valid_donor_list = '127.0.0.1:"+port+"'",
		"CLONE INSTANCE FROM 'root'@'127.0.0.1':"+port+" IDENTIFIED BY ''")
	const restartFailed = 3707
	if answer := (*mysql.MySQLError)(nil); err != nil && !(errors.As(err, &answer) && answer.Number == restartFailed) {
		return err
	}
	return standby.Restart(ctx)
}

// mariadbReplication is that of MariaDB.
type mariadbReplication struct{ gtids }

var ofMariaDB = mariadbReplication{gtids{
	role: "master", replica: "SLAVE", status: "information_schema",
	follows: "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = %s, MASTER_USER = 'root', " +
		"MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1",
	position: "SELECT @@gtid_current_pos", reach: "SELECT MASTER_GTID_WAIT(?, ?)",
}}

// A server starts read only, as on MySQL. With init_rpl_role it discards, when it starts after a
// crash, what its binary log has and its standby has not acknowledged.
func (mariadbReplication) settings(number int) []string {
	return []string{
		"--server-id=" + strconv.Itoa(number), "--log-bin=binlog", "--log-slave-updates=ON", "--gtid-strict-mode=ON",
		"--binlog-format=ROW", // the strictest: a row that a standby has otherwise stops it
		"--sync-binlog=0", "--relay-log-recovery=ON", "--read-only=ON", "--init-rpl-role=SLAVE",
		"--rpl-semi-sync-master-wait-point=AFTER_SYNC", "--rpl-semi-sync-master-timeout=" + strconv.Itoa(forever),
		"--rpl-semi-sync-slave-enabled=ON",
	}
}

func (mariadbReplication) leads() string { return "SELECT NOT @@read_only" }

// demote ends the clients' sessions, as on MySQL. It does so again and again while the server
// becomes read only: that waits until no statement waits for a row, and MariaDB cannot keep clients
// out.
func (r mariadbReplication) demote(ctx context.Context, primary, standby *Server) error {
	err := on(primary, func(a asks) error {
		closed := make(chan error, 1)
		go func() { closed <- a.do(ctx, "SET GLOBAL read_only = ON") }()
		for {
			err := a.do(ctx, "KILL USER "+Client)
			select {
			case failed := <-closed: // those that have come meanwhile may hold locks
				if err := errors.Join(err, failed, a.do(ctx, "KILL USER "+Client)); err != nil {
					return err
				}
				return a.until(ctx, noneKilled)
			case <-time.After(5 * time.Millisecond):
			}
		}
	})
	if err != nil {
		return err
	}
	return r.catchUp(ctx, standby, primary)
}

// noneKilled asks whether no session is left of those that were told to end. Others may come, which
// get no locks.
const noneKilled = noClients + " AND command = 'Killed'"

func (r mariadbReplication) promote(ctx context.Context, standby *Server) error {
	return r.take(ctx, standby, r.received)
}

// received is the last position that a standby has in its relay log.
func (mariadbReplication) received(ctx context.Context, standby *Server) (position string, err error) {
	err = on(standby, func(a asks) error {
		rows, err := a.QueryContext(ctx, "SHOW SLAVE STATUS")
		if err != nil {
			return err
		}
		defer rows.Close()
		names, err := rows.Columns()
		if err != nil || !rows.Next() {
			return errors.Join(err, rows.Err(), errors.New("no standby"))
		}
		values := make([]any, len(names))
		for i, name := range names {
			values[i] = new(any)
			if name == "Gtid_IO_Pos" {
				values[i] = &position
			}
		}
		return rows.Scan(values...)
	})
	return position, err
}

func (r mariadbReplication) rejoin(ctx context.Context, former, primary *Server) error {
	if err := r.alone(ctx, former); err != nil {
		return err
	}
	return r.follow(ctx, former, primary, ", MASTER_DEMOTE_TO_SLAVE = 1")
}
