package doctor

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// set gives a variable another value for new sessions. If this session's value differs from the
// server's, it comes from the connection string or from the account.
func (m *mysqlServer) set(name, value string) Fix {
	_, inDSN := m.config.Params[name]
	switch {
	case inDSN:
		return advice("remove " + name + " from the connection string")
	case name == "max_statement_time" && m.session[name] != m.global[name]:
		return statements("ALTER USER " + m.account + " WITH MAX_STATEMENT_TIME " + value)
	case m.mariaDB:
		assignment := name + " = " + value
		return statements("SET GLOBAL " + assignment).besides(
			"for the next start also below [mysqld] in the configuration: " + assignment)
	}
	return statements("SET PERSIST " + name + " = " + value)
}

// configured gives a variable another value if the server reads it only at its start.
func configured(name, value string) Fix {
	return configuration("the server's configuration, then restart it", "[mysqld]", name+" = "+value)
}

// origin says whether the value is this session's own.
func (m *mysqlServer) origin(name string) string {
	if m.session[name] != m.global[name] {
		return " in this session"
	}
	return ""
}

// period is the value of a session variable that counts units of time. It may have fractions.
func (m *mysqlServer) period(name string, unit time.Duration) time.Duration {
	n, _ := strconv.ParseFloat(m.session[name], 64)
	return time.Duration(n * float64(unit))
}

const (
	aWait = "a LockTx that waits for longer ends with ErrNotAcquired, unless Within limits it. Lock and Do wait on, " +
		"but the first such wait of a program goes to the end of the queue"
	anIdleHolder = ": the work of a Do, and a LockTx. A Lock is kept alive by its heartbeat, every sixth of the " +
		"lease or more often"
)

// mysqlLimits are of both systems. A server does not know those of the other.
var mysqlLimits = []limit{
	{
		name: "wait_timeout", unit: time.Second, short: Warning, long: OK, heal: "28800",
		besides: "; Lock and Do set their own, the lease",
		why: "a LockTx whose transaction sends no statement for that long loses its lock and the transaction, and " +
			"idle connections of a pool are closed",
	},
	{name: "max_execution_time", unit: time.Millisecond, short: Warning, long: Warning, heal: "0", why: aWait},
	{
		name: "max_statement_time", unit: time.Second, short: Warning, long: Warning, heal: "0",
		why: aWait + ". A long statement of the work ends with the server's error",
	},
	{
		name: "idle_transaction_timeout", unit: time.Second, short: Warning, long: Note, heal: "0",
		why: "the server ends a session that holds a lock and sends nothing for that long" + anIdleHolder,
	},
	{
		name: "idle_readonly_transaction_timeout", unit: time.Second, short: Warning, long: Note, heal: "0",
		why: "the server ends a session that holds a lock, has written nothing, and sends nothing for that long" +
			anIdleHolder,
	},
	{
		name: "idle_write_transaction_timeout", unit: time.Second, short: Warning, long: Note, heal: "0",
		why: "the server ends a session that holds a lock, has written something, and sends nothing for that long" +
			anIdleHolder,
	},
}

func (m *mysqlServer) timeouts(_ context.Context, r report) (fine string, err error) {
	for _, limit := range mysqlLimits {
		if _, known := m.session[limit.name]; known {
			r.limit(limit, m.period(limit.name, limit.unit), m.origin(limit.name), m.set)
		}
	}
	m.lockWait(r.named("innodb-lock-wait-timeout"))
	if m.global["innodb_rollback_on_timeout"] == "ON" {
		r.named("innodb-rollback-on-timeout").note("innodb_rollback_on_timeout = ON",
			"a LockTx that waits for longer than innodb_lock_wait_timeout ends with ErrLost instead of "+
				"ErrNotAcquired, for the server rolls the whole transaction back; on MariaDB so does a try of Rows "+
				"that misses, in a transaction that has begun before", configured("innodb_rollback_on_timeout", "OFF"))
	}
	return "", nil
}

// lockWait judges innodb_lock_wait_timeout. Sessions of mysql.Open set their own. On MariaDB, a
// statement can have its own, and all statements of Lock and Do do. On mysql.New with MySQL they
// wait on, but go to the end of the queue.
func (m *mysqlServer) lockWait(r report) {
	const name = "innodb_lock_wait_timeout"
	limit := m.period(name, time.Second)
	others, why := "sessions of mysql.Open have their own", "a LockTx that waits for longer ends with ErrNotAcquired"
	if m.mariaDB {
		others = "Lock and Do have their own"
	} else {
		why += "; Lock and Do on mysql.New wait on, but go to the end of the queue"
	}
	found := fmt.Sprintf("%s = %v%s; %s", name, limit, m.origin(name), others)
	switch {
	case limit >= 24*time.Hour:
		r.ok(found)
	case limit == 0: // MariaDB allows it
		r.warn(fmt.Sprintf("%s = 0%s: a session does not wait for a row at all; %s", name, m.origin(name), others),
			"while another session holds the lock of a LockTx, that ends with ErrNotAcquired at once. And where the "+
				"work of a transaction itself says SKIP LOCKED, a row that is held is error 1180, with which MariaDB "+
				"undoes what the transaction has written", m.set(name, "50"))
	case limit < 10*time.Second:
		r.warn(found, why, m.set(name, "50"))
	default:
		r.note(found, why, Fix{})
	}
}

func (m *mysqlServer) isolation(_ context.Context, r report) (fine string, err error) {
	name := "transaction_isolation"
	if m.session[name] == "" { // MariaDB before 11.1
		name = "tx_isolation"
	}
	found := "transactions begin at " + m.session[name] + m.origin(name)
	if m.session[name] == "REPEATABLE-READ" {
		r.note(found, "in a transaction at this level call LockTx before the first plain SELECT, whose snapshot all "+
			"later ones read: the server does not tell, so txlock cannot check it. Do runs at READ COMMITTED",
			advice("begin such transactions with sql.TxOptions{Isolation: sql.LevelReadCommitted}"))
	}
	return found, nil
}

func (m *mysqlServer) readOnly(_ context.Context, r report) (fine string, err error) {
	const transaction = "SELECT … FOR UPDATE is refused in a transaction that is read only, as all are that do not " +
		"ask otherwise"
	// Set by whatever switches servers over.
	primary := statements("SET GLOBAL read_only = OFF").only("connect to the primary server; if this is it:")
	for _, variable := range []struct {
		name, why string
		fix       Fix
	}{ // in the order in which they must be repaired
		{"innodb_read_only", "it changes no data at all, and locks no rows", configured("innodb_read_only", "OFF")},
		{"super_read_only", "SELECT … FOR UPDATE is refused to everybody", primary},
		{"read_only", "SELECT … FOR UPDATE is refused, and to a user who may override that it locks rows of a " +
			"server that others do not write to", primary},
		{"transaction_read_only", transaction, m.set("transaction_read_only", "OFF")},
		{"tx_read_only", transaction, m.set("tx_read_only", "OFF")},
	} {
		if value := m.session[variable.name]; value != "" && value != "OFF" && value != "0" {
			r.fails(variable.name+" = "+value, variable.why, variable.fix)
			break
		}
	}
	return "the server takes writes", nil
}

func (m *mysqlServer) deadlocks(_ context.Context, r report) (fine string, err error) {
	if m.global["innodb_deadlock_detect"] == "OFF" {
		r.warn("innodb_deadlock_detect = OFF", "sessions that wait for each other wait until "+
			"innodb_lock_wait_timeout ends one: on mysql.Open as long as the context allows",
			m.set("innodb_deadlock_detect", "ON"))
	}
	return "the server ends a deadlock at once", nil
}

// durability judges what a crash would undo. No lock writes its row, so only commits and tokens
// depend on the disk.
func (m *mysqlServer) durability(ctx context.Context, r report) (fine string, err error) {
	const name = "innodb_flush_log_at_trx_commit"
	fence, hidden, err := m.hasFence(ctx)
	if value := m.global[name]; err == nil && value != "1" && (fence || hidden != nil) {
		found := name + " = " + value
		if hidden != nil {
			found += "; whether tokens are installed is not visible to " + m.account
		}
		r.warn(found, "when the server's machine crashes, the number of the server's run may be drawn a second time, "+
			"and fencing tokens come again", m.set(name, "1"))
	}
	return "locks and tokens need nothing more than " + name + " = " + m.global[name], err
}
