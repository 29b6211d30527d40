package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"

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

// opening makes a new server a primary with a database and a user for clients.
func opening(url string) probe {
	return func(ctx context.Context) error {
		return on(&Server{Kind: MySQL, DSN: url}, func(a asks) error {
			return a.do(ctx, append([]string{"SET GLOBAL read_only = OFF", "CREATE DATABASE IF NOT EXISTS txlock"},
				clientUser...)...)
		})
	}
}

// startEmpty starts a server with nothing in it, which gets all of its data by replication.
func startEmpty(ctx context.Context, found programs, primary *Server, settings []string) (*Server, error) {
	return startPrivate(ctx, inMemory(), func(folder string, port int) plan {
		standby := found.plan(folder, port, primary.Kind, Options{Settings: settings})
		standby.name += " standby"
		standby.first = statement(primary.Kind.driver(), urlOf(primary.Kind, port), "SELECT 1")
		return standby
	})
}

func portOf(server *Server) (string, error) {
	address, err := addressOf(server)
	if err != nil {
		return "", err
	}
	_, port, err := net.SplitHostPort(address)
	return port, err
}

// mysqlReplication goes by GTIDs, semi-synchronously.
type mysqlReplication struct{}

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

func (mysqlReplication) opens(url string) probe { return opening(url) }

func (r mysqlReplication) first(ctx context.Context, found programs, primary *Server, settings []string) (
	*Server, error,
) {
	standby, err := startEmpty(ctx, found, primary, settings)
	if err != nil {
		return nil, err
	}
	return standby, r.follow(ctx, standby, primary)
}

func (mysqlReplication) follow(ctx context.Context, standby, primary *Server) error {
	port, err := portOf(primary)
	if err != nil {
		return err
	}
	return on(standby, func(a asks) error {
		return a.do(ctx, "CHANGE REPLICATION SOURCE TO SOURCE_HOST = '127.0.0.1', SOURCE_PORT = "+port+", "+
			"SOURCE_USER = 'root', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1, SOURCE_CONNECT_RETRY = 1",
			"START REPLICA")
	})
}

func (r mysqlReplication) wait(ctx context.Context, primary, standby *Server, synchronous bool) error {
	caughtUp, err := r.position(ctx, primary)
	if err != nil {
		return err
	}
	if err := r.reach(ctx, standby, caughtUp); err != nil || !synchronous {
		return err
	}
	return on(primary, func(a asks) error {
		if err := a.do(ctx, "SET GLOBAL rpl_semi_sync_source_enabled = ON"); err != nil {
			return err
		}
		return a.until(ctx, "SELECT COUNT(*) = 2 FROM performance_schema.global_status WHERE VARIABLE_NAME = "+
			"'Rpl_semi_sync_source_status' AND VARIABLE_VALUE = 'ON' OR VARIABLE_NAME = "+
			"'Rpl_semi_sync_source_clients' AND VARIABLE_VALUE > 0")
	})
}

func (mysqlReplication) position(ctx context.Context, server *Server) (set string, err error) {
	err = on(server, func(a asks) (err error) {
		set, err = a.text(ctx, "SELECT @@GLOBAL.gtid_executed")
		return err
	})
	return set, err
}

// reach waits until the standby has applied a set of transactions.
func (mysqlReplication) reach(ctx context.Context, standby *Server, set string) error {
	return on(standby, func(a asks) error {
		late, err := a.text(ctx, "SELECT WAIT_FOR_EXECUTED_GTID_SET(?, ?)", set, reached)
		if err != nil || late == "0" {
			return err
		}
		why, err := a.text(ctx, "SELECT CONCAT_WS('; ', @@GLOBAL.gtid_executed, (SELECT CONCAT(LAST_ERROR_MESSAGE, "+
			"' ', SERVICE_STATE) FROM performance_schema.replication_connection_status), (SELECT "+
			"GROUP_CONCAT(LAST_ERROR_MESSAGE) FROM performance_schema.replication_applier_status_by_worker))")
		return errors.Join(fmt.Errorf("the standby does not follow to %s: %s", set, why), err)
	})
}

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
	last, err := r.position(ctx, primary)
	if err != nil {
		return err
	}
	return r.reach(ctx, standby, last)
}

// promote applies all that the standby has received before it takes writes.
func (r mysqlReplication) promote(ctx context.Context, standby *Server) error {
	received := ""
	err := on(standby, func(a asks) (err error) {
		if err = a.do(ctx, "STOP REPLICA IO_THREAD"); err != nil {
			return err
		}
		received, err = a.text(ctx, "SELECT COALESCE(MAX(RECEIVED_TRANSACTION_SET), '') FROM "+
			"performance_schema.replication_connection_status")
		return err
	})
	if err == nil {
		err = r.reach(ctx, standby, received)
	}
	if err != nil {
		return err
	}
	return on(standby, func(a asks) error {
		return a.do(ctx, "STOP REPLICA", "RESET REPLICA ALL", "SET GLOBAL read_only = OFF")
	})
}

// rejoin replaces the data of a former primary that has a transaction which the new one never got.
// A semi-synchronous primary that crashed while a commit waited for the standby has it in its
// binary log, and commits it when it starts.
func (r mysqlReplication) rejoin(ctx context.Context, former, primary *Server) error {
	if err := former.running(ctx); err != nil {
		return err
	}
	// Otherwise it would wait for a standby of its own when it applies what it gets. This takes a
	// second.
	err := on(former, func(a asks) error { return a.do(ctx, "SET GLOBAL rpl_semi_sync_source_enabled = OFF") })
	if err != nil {
		return err
	}
	mine, err := r.position(ctx, former)
	if err != nil {
		return err
	}
	errant := ""
	err = on(primary, func(a asks) (err error) {
		errant, err = a.text(ctx, "SELECT GTID_SUBTRACT(?, @@GLOBAL.gtid_executed)", mine)
		return err
	})
	if err == nil && errant != "" {
		err = r.clone(ctx, former, primary)
	}
	if err == nil {
		err = r.follow(ctx, former, primary)
	}
	if err != nil {
		return err
	}
	return on(former, func(a asks) error { return a.do(ctx, "SET GLOBAL offline_mode = OFF") })
}

// clone copies the primary over the data of a server, which then ends: nobody supervises it.
func (mysqlReplication) clone(ctx context.Context, standby, primary *Server) error {
	port, err := portOf(primary)
	if err != nil {
		return err
	}
	err = on(standby, func(a asks) error {
		return a.do(ctx, "SET GLOBAL read_only = OFF", "SET GLOBAL clone_valid_donor_list = '127.0.0.1:"+port+"'",
			"CLONE INSTANCE FROM 'root'@'127.0.0.1':"+port+" IDENTIFIED BY ''")
	})
	const restartFailed = 3707
	if answer := (*mysql.MySQLError)(nil); err != nil && !(errors.As(err, &answer) && answer.Number == restartFailed) {
		return err
	}
	return standby.Restart(ctx)
}

// running starts the server, unless it runs.
func (s *Server) running(ctx context.Context) error {
	if s.toProcess(func(*process) error { return nil }) == nil {
		return nil
	}
	return s.Restart(ctx)
}
