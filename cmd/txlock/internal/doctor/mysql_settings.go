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

// cuts are the variables that end a lock or a wait unless they are 0. What why says was seen on
// servers: see the tests.
var cuts = []struct {
	name string
	unit time.Duration
	why  string
}{
	{"max_execution_time", time.Millisecond, "a LockTx that waits for longer ends with ErrNotAcquired, unless Within " +
		"limits it. Lock and Do wait on, but the first such wait of a program goes to the end of the queue"},
	{"max_statement_time", time.Second, "a LockTx that waits for longer ends with ErrNotAcquired, unless Within " +
		"limits it. Lock and Do wait on, but the first such wait of a program goes to the end of the queue. " +
		"A long statement of the work ends with the server's error"},
}

// idles are MariaDB's variables that end sessions that are idle in a transaction.
var idles = []struct{ name, why string }{
	{"idle_transaction_timeout", "the server ends a session that holds a lock and sends nothing for that long"},
	{"idle_readonly_transaction_timeout", "the server ends a session that holds a lock, has written nothing, and " +
		"sends nothing for that long"},
	{"idle_write_transaction_timeout", "the server ends a session that holds a lock, has written something, and " +
		"sends nothing for that long"},
}

func (m *mysqlServer) lookAtTimeouts(context.Context) ([]Finding, error) {
	findings := []Finding{m.waitTimeout(), m.lockWait()}
	for _, cut := range cuts {
		if _, known := m.session[cut.name]; !known { // the other system's variable
			continue
		}
		finding := Finding{Check: kebab(cut.name), Severity: OK, Found: cut.name + " is off"}
		if limit := m.period(cut.name, cut.unit); limit > 0 {
			finding.Severity, finding.Why, finding.Fix = Warning, cut.why, m.set(cut.name, "0")
			finding.Found = fmt.Sprintf("%s = %v%s", cut.name, limit, m.origin(cut.name))
		}
		findings = append(findings, finding)
	}
	for _, idle := range idles {
		if _, known := m.session[idle.name]; known {
			findings = append(findings, m.idle(idle.name, idle.why))
		}
	}
	if m.global["innodb_rollback_on_timeout"] == "ON" {
		findings = append(findings, Finding{
			Check: "innodb-rollback-on-timeout", Severity: Note, Found: "innodb_rollback_on_timeout = ON",
			Fix: configured("innodb_rollback_on_timeout", "OFF"),
			Why: "a LockTx that waits for longer than innodb_lock_wait_timeout ends with ErrLost instead of " +
				"ErrNotAcquired, for the server rolls the whole transaction back; on MariaDB so does a try of Rows " +
				"that misses, in a transaction that has begun before",
		})
	}
	return findings, nil
}

func (m *mysqlServer) waitTimeout() Finding {
	const name = "wait_timeout"
	limit := m.period(name, time.Second)
	finding := Finding{
		Check: kebab(name), Severity: OK,
		Found: fmt.Sprintf("%s = %v%s; Lock and Do set their own, the lease", name, limit, m.origin(name)),
	}
	if limit < lease {
		finding.Severity, finding.Fix = Warning, m.set(name, "28800")
		finding.Why = "a LockTx whose transaction sends no statement for that long loses its lock and the " +
			"transaction, and idle connections of a pool are closed"
	}
	return finding
}

// lockWait judges innodb_lock_wait_timeout. Sessions of mysql.Open set their own. On MariaDB, a
// statement can have its own, and all statements of Lock and Do do. On mysql.New with MySQL they
// wait on, but go to the end of the queue.
func (m *mysqlServer) lockWait() Finding {
	const name = "innodb_lock_wait_timeout"
	limit := m.period(name, time.Second)
	others, why := "sessions of mysql.Open have their own", "a LockTx that waits for longer ends with ErrNotAcquired"
	if m.mariaDB {
		others = "Lock and Do have their own"
	} else {
		why += "; Lock and Do on mysql.New wait on, but go to the end of the queue"
	}
	finding := Finding{
		Check: kebab(name), Severity: Note,
		Found: fmt.Sprintf("%s = %v%s; %s", name, limit, m.origin(name), others), Why: why,
	}
	switch {
	case limit >= 24*time.Hour:
		finding.Severity, finding.Why = OK, ""
	case limit == 0: // MariaDB allows it
		finding.Severity, finding.Fix = Warning, m.set(name, "50")
		finding.Found = fmt.Sprintf("%s = 0%s: a session does not wait for a row at all; %s", name, m.origin(name),
			others)
		finding.Why = "while another session holds the lock of a LockTx, that ends with ErrNotAcquired at once. And " +
			"where the work of a transaction itself " +
			"says SKIP LOCKED, a row that is held is error 1180, with which MariaDB undoes what the transaction has " +
			"written"
	case limit < 10*time.Second:
		finding.Severity, finding.Fix = Warning, m.set(name, "50")
	}
	return finding
}

func (m *mysqlServer) idle(name, why string) Finding {
	limit := m.period(name, time.Second)
	finding := Finding{Check: kebab(name), Severity: OK, Found: name + " is off"}
	if limit > 0 {
		finding.Severity, finding.Fix = Note, m.set(name, "0")
		finding.Found = fmt.Sprintf("%s = %v%s", name, limit, m.origin(name))
		finding.Why = why + ": the work of a Do, and a LockTx. A Lock is kept alive by its heartbeat, every sixth of " +
			"the lease or more often"
	}
	if limit > 0 && limit < lease {
		finding.Severity = Warning
	}
	return finding
}

// isolation is the default of a session. MariaDB before 11.1 has another name for the variable.
func (m *mysqlServer) isolation() (name, level string) {
	for _, name = range []string{"transaction_isolation", "tx_isolation"} {
		if level = m.session[name]; level != "" {
			break
		}
	}
	return name, level
}

func (m *mysqlServer) lookAtIsolation(context.Context) ([]Finding, error) {
	name, level := m.isolation()
	finding := Finding{Severity: OK, Found: "transactions begin at " + level + m.origin(name)}
	if level == "REPEATABLE-READ" {
		finding.Severity = Note
		finding.Why = "in a transaction at this level call LockTx before the first plain SELECT, whose snapshot all " +
			"later ones read: the server does not tell, so txlock cannot check it. Do runs at READ COMMITTED"
		finding.Fix = advice("begin such transactions with sql.TxOptions{Isolation: sql.LevelReadCommitted}")
	}
	return one(finding), nil
}

// readOnlyVariables is in the order in which they must be repaired.
var readOnlyVariables = []struct{ name, why string }{
	{"innodb_read_only", "it changes no data at all, and locks no rows"},
	{"super_read_only", "SELECT … FOR UPDATE is refused to everybody"},
	{"read_only", "SELECT … FOR UPDATE is refused, and to a user who may override that it locks rows of a server " +
		"that others do not write to"},
	{"transaction_read_only", "SELECT … FOR UPDATE is refused in a transaction that is read only, as all are that do " +
		"not ask otherwise"},
	{"tx_read_only", "SELECT … FOR UPDATE is refused in a transaction that is read only, as all are that do not ask " +
		"otherwise"},
}

func (m *mysqlServer) lookAtReadOnly(context.Context) ([]Finding, error) {
	for _, variable := range readOnlyVariables {
		value := m.session[variable.name]
		if value == "" || value == "OFF" || value == "0" || variable.name == "tx_read_only" &&
			m.session["transaction_read_only"] != "" {
			continue
		}
		fix := m.set(variable.name, "OFF")
		switch variable.name {
		case "innodb_read_only":
			fix = configured(variable.name, "OFF")
		case "super_read_only", "read_only": // set by whatever switches servers over
			fix = statements("SET GLOBAL read_only = OFF").only("connect to the primary server; if this is it:")
		}
		return one(Finding{Severity: Failure, Found: variable.name + " = " + value, Why: variable.why, Fix: fix}), nil
	}
	return one(Finding{Severity: OK, Found: "the server takes writes"}), nil
}

func (m *mysqlServer) lookAtDeadlocks(context.Context) ([]Finding, error) {
	if value := m.global["innodb_deadlock_detect"]; value == "OFF" {
		return one(Finding{
			Severity: Warning, Found: "innodb_deadlock_detect = OFF", Fix: m.set("innodb_deadlock_detect", "ON"),
			Why: "sessions that wait for each other wait until innodb_lock_wait_timeout ends one: on mysql.Open as " +
				"long as the context allows",
		}), nil
	}
	return one(Finding{Severity: OK, Found: "the server ends a deadlock at once"}), nil
}

func (m *mysqlServer) lookAtKeepalives(context.Context) ([]Finding, error) {
	return one(Finding{Severity: OK, Found: fmt.Sprintf(
		"the kernel of the server's machine decides, the server has no setting; the lease does not need them. "+
			"A LockTx of a client that vanished is released after wait_timeout, %v",
		m.period("wait_timeout", time.Second))}), nil
}
