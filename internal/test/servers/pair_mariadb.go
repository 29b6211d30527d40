package servers

import (
	"context"
	"errors"
	"strconv"
	"time"
)

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
