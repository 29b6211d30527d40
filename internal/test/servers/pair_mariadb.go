package servers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// mariadbReplication goes by GTIDs, semi-synchronously.
type mariadbReplication struct{}

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

func (mariadbReplication) opens(url string) probe { return opening(url) }

func (r mariadbReplication) first(ctx context.Context, found programs, primary *Server, settings []string) (
	*Server, error,
) {
	standby, err := startEmpty(ctx, found, primary, settings)
	if err != nil {
		return nil, err
	}
	return standby, r.follow(ctx, standby, primary, "")
}

func (mariadbReplication) follow(ctx context.Context, standby, primary *Server, more string) error {
	port, err := portOf(primary)
	if err != nil {
		return err
	}
	return on(standby, func(a asks) error {
		return a.do(ctx, "CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = "+port+", MASTER_USER = 'root', "+
			"MASTER_USE_GTID = slave_pos, MASTER_CONNECT_RETRY = 1"+more, "START SLAVE")
	})
}

func (r mariadbReplication) wait(ctx context.Context, primary, standby *Server, synchronous bool) error {
	caughtUp, err := r.position(ctx, primary)
	if err != nil {
		return err
	}
	if err := r.reach(ctx, standby, caughtUp); err != nil || !synchronous {
		return err
	}
	return on(primary, func(a asks) error {
		if err := a.do(ctx, "SET GLOBAL rpl_semi_sync_master_enabled = ON"); err != nil {
			return err
		}
		return a.until(ctx, "SELECT COUNT(*) = 2 FROM information_schema.global_status WHERE VARIABLE_NAME = "+
			"'Rpl_semi_sync_master_status' AND VARIABLE_VALUE = 'ON' OR VARIABLE_NAME = "+
			"'Rpl_semi_sync_master_clients' AND VARIABLE_VALUE > 0")
	})
}

func (mariadbReplication) position(ctx context.Context, server *Server) (position string, err error) {
	err = on(server, func(a asks) (err error) {
		position, err = a.text(ctx, "SELECT @@gtid_current_pos")
		return err
	})
	return position, err
}

// reach waits until the standby has applied all transactions up to a position.
func (mariadbReplication) reach(ctx context.Context, standby *Server, position string) error {
	return on(standby, func(a asks) error {
		late, err := a.text(ctx, "SELECT MASTER_GTID_WAIT(?, ?)", position, reached)
		if err == nil && late != "0" {
			err = fmt.Errorf("the standby does not follow to %s", position)
		}
		return err
	})
}

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
	last, err := r.position(ctx, primary)
	if err != nil {
		return err
	}
	return r.reach(ctx, standby, last)
}

// noneKilled asks whether no session is left of those that were told to end. Others may come, which
// get no locks.
const noneKilled = noClients + " AND command = 'Killed'"

func (r mariadbReplication) promote(ctx context.Context, standby *Server) error {
	err := on(standby, func(a asks) error {
		return a.do(ctx, "STOP SLAVE IO_THREAD")
	})
	if err != nil {
		return err
	}
	received, err := r.received(ctx, standby)
	if err == nil && received != "" {
		err = r.reach(ctx, standby, received)
	}
	if err != nil {
		return err
	}
	return on(standby, func(a asks) error {
		return a.do(ctx, "STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = OFF")
	})
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
	if err := former.running(ctx); err != nil {
		return err
	}
	err := on(former, func(a asks) error { return a.do(ctx, "SET GLOBAL rpl_semi_sync_master_enabled = OFF") })
	if err != nil {
		return err
	}
	return r.follow(ctx, former, primary, ", MASTER_DEMOTE_TO_SLAVE = 1")
}
