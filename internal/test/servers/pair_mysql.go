package servers

import (
	"context"
	"errors"
	"strconv"

	"github.com/go-sql-driver/mysql"
)

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
