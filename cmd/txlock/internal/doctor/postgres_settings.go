package doctor

import (
	"context"
	"fmt"
	"strconv"
	"time"
)

// setting is a row of pg_settings.
type setting struct {
	name, value, source string
}

// milliseconds is the value of a setting in milliseconds.
func (s setting) milliseconds() time.Duration {
	n, _ := strconv.Atoi(s.value)
	return time.Duration(n) * time.Millisecond
}

// seconds is the value of a setting in seconds.
func (s setting) seconds() time.Duration {
	n, _ := strconv.Atoi(s.value)
	return time.Duration(n) * time.Second
}

// origin says where the session's value comes from.
func (s setting) origin() string {
	switch s.source {
	case "default":
		return ""
	case "user":
		return ", set for the role"
	case "database user":
		return ", set for the role in this database"
	case "database":
		return ", set for the database"
	case "client":
		return ", set by the connection string or PGOPTIONS"
	}
	return ", set by the server's " + s.source
}

// read returns the settings of this session.
func (p *postgresServer) read(ctx context.Context) (map[string]setting, error) {
	rows, err := p.conn.Query(ctx, "SELECT name, setting, source FROM pg_settings WHERE setting IS NOT NULL")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	settings := map[string]setting{}
	for rows.Next() {
		var s setting
		if err := rows.Scan(&s.name, &s.value, &s.source); err != nil {
			return nil, err
		}
		settings[s.name] = s
	}
	return settings, rows.Err()
}

// set gives a setting another value for the sessions of this role. The role may run it itself. It
// leaves other roles alone, which may have good reason for the setting.
func (p *postgresServer) set(name, value string) Fix {
	switch p.settings[name].source {
	case "client":
		return removal(name)
	case "database user":
		return statements(fmt.Sprintf("ALTER ROLE %s IN DATABASE %s SET %s = %s", p.role, p.database, name, value))
	}
	return statements(fmt.Sprintf("ALTER ROLE %s SET %s = %s", p.role, name, value))
}

func removal(name string) Fix {
	return advice("remove " + name + " from the connection string and from PGOPTIONS")
}

// needed are the settings without which txlock refuses a connection.
var needed = []setting{{name: "client_encoding", value: "UTF8"}, {name: "standard_conforming_strings", value: "on"}}

func (p *postgresServer) lookAtSession(context.Context) (findings []Finding, err error) {
	for _, needed := range needed {
		finding := Finding{Check: kebab(needed.name), Severity: OK, Found: needed.name + " = " + needed.value}
		if value, unfit := p.unfit[needed.name]; unfit {
			finding.Severity, finding.Found = Failure, needed.name+" = "+value
			finding.Why = "every call on such a connection is an error; postgres.Open asks for what serves"
			finding.Fix = statements(fmt.Sprintf("ALTER ROLE %s IN DATABASE %s SET %s = '%s'", p.role, p.database,
				needed.name, needed.value))
			if p.config.ConnConfig.RuntimeParams[needed.name] != "" {
				finding.Fix = removal(needed.name)
			}
		}
		findings = append(findings, finding)
	}
	return findings, nil
}

// timeouts are the settings that end a lock or a wait unless they are 0. What why says was seen on
// servers: see the tests.
var timeouts = []struct{ name, why string }{
	{"statement_timeout", "a wait for a lock is one statement: one that takes longer ends with ErrNotAcquired. So " +
		"does, with the server's error, a long statement of the work"},
	{"lock_timeout", "a wait for a lock that Within does not limit ends with ErrNotAcquired when it is over"},
	{"transaction_timeout", "a lock is a transaction: the server ends the session of a wait, a Do or a Lock of Rows " +
		"that takes longer, and the lock is lost with ErrLost; a Lock of keys is renewed every minute, so it is lost " +
		"only with less than that"},
}

func (p *postgresServer) lookAtTimeouts(context.Context) ([]Finding, error) {
	var findings []Finding
	for _, limit := range timeouts {
		s, known := p.settings[limit.name]
		if !known { // transaction_timeout came with PostgreSQL 17
			continue
		}
		finding := Finding{Check: kebab(s.name), Severity: OK, Found: s.name + " is off"}
		if limited := s.milliseconds(); limited > 0 {
			finding.Severity, finding.Why, finding.Fix = Warning, limit.why, p.set(s.name, "0")
			finding.Found = fmt.Sprintf("%s = %v%s", s.name, limited, s.origin())
		}
		findings = append(findings, finding)
	}
	return append(findings, p.idleInTransaction(), p.idle()), nil
}

func (p *postgresServer) idleInTransaction() Finding {
	s := p.settings["idle_in_transaction_session_timeout"]
	limited := s.milliseconds()
	finding := Finding{
		Check: kebab(s.name), Severity: OK,
		Found: s.name + " is off; Lock and Do set their own, the lease",
	}
	if limited > 0 {
		finding.Severity = Note
		finding.Found = fmt.Sprintf("%s = %v%s; Lock and Do set their own, the lease", s.name, limited, s.origin())
		finding.Why = "a LockTx whose transaction sends no statement for that long loses its lock, and the transaction"
	}
	if limited > 0 && limited < lease {
		finding.Severity, finding.Fix = Warning, p.set(s.name, "'5min'")
	}
	return finding
}

func (p *postgresServer) idle() Finding {
	s := p.settings["idle_session_timeout"]
	limited := s.milliseconds()
	finding := Finding{Check: kebab(s.name), Severity: OK, Found: s.name + " is off"}
	if limited > 0 {
		finding.Severity, finding.Fix = Note, p.set(s.name, "0")
		finding.Found = fmt.Sprintf("%s = %v%s", s.name, limited, s.origin())
		finding.Why = "it ends no lock, only connections that wait in the pool: txlock sees that and replaces them, " +
			"which costs a connect"
	}
	return finding
}

func (p *postgresServer) lookAtIsolation(context.Context) ([]Finding, error) {
	s := p.settings["default_transaction_isolation"]
	finding := Finding{Severity: OK, Found: fmt.Sprintf("transactions begin at %s%s", s.value, s.origin())}
	if s.value == "repeatable read" || s.value == "serializable" {
		finding.Severity = Warning
		finding.Why = "LockTx refuses such a transaction with ErrIsolation, because it would read what was there " +
			"before its lock; Lock and Do set their own level"
		finding.Fix = p.set(s.name, "'read committed'")
	}
	return one(finding), nil
}

func (p *postgresServer) lookAtReadOnly(ctx context.Context) ([]Finding, error) {
	var standby bool
	if err := p.conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby); err != nil {
		return nil, err
	}
	s := p.settings["default_transaction_read_only"]
	switch {
	case standby:
		return one(Finding{
			Severity: Failure, Found: "this server is a standby",
			Fix: advice("add target_session_attrs=read-write to the connection string, and name the primary in it"),
			Why: "a standby locks no rows; only the primary does",
		}), nil
	case s.value == "on":
		return one(Finding{
			Severity: Warning, Found: s.name + " = on" + s.origin(), Fix: p.set(s.name, "off"),
			Why: "SELECT … FOR UPDATE is refused in a read-only transaction, and with it LockTx; Lock and Do begin " +
				"their own, READ WRITE",
		}), nil
	}
	return one(Finding{Severity: OK, Found: "the server takes writes"}), nil
}

// lookAtClientCheck sets what every wait sets, in a transaction that it rolls back.
func (p *postgresServer) lookAtClientCheck(ctx context.Context) ([]Finding, error) {
	tx, err := p.conn.Begin(ctx)
	if err != nil {
		return nil, err
	}
	_, err = tx.Exec(ctx, "SET LOCAL client_connection_check_interval = '500ms'")
	refused := sqlState(err) != ""
	if rolledBack := tx.Rollback(ctx); rolledBack != nil {
		return nil, rolledBack
	}
	switch {
	case refused:
		return one(Finding{
			Severity: Failure, Found: "the server refuses client_connection_check_interval: " + err.Error(),
			Why: "every wait sets it, so that a waiter whose client died leaves the queue; where it is refused, " +
				"every lock is that error",
			Fix: advice("use PostgreSQL 14 or later on a system that can do it: Linux, macOS, illumos or a BSD"),
		}), nil
	case err != nil:
		return nil, err
	}
	return one(Finding{Severity: OK, Found: "it can be set: a waiter whose client died leaves the queue within 0.5 s"}),
		nil
}

// longSilence is the time after which somebody has noticed that a lock is not released.
const longSilence = 10 * time.Minute

func (p *postgresServer) lookAtKeepalives(context.Context) ([]Finding, error) {
	if p.socket {
		return one(Finding{Severity: OK, Found: "not needed: the server was reached through a Unix-domain socket"}), nil
	}
	count, _ := strconv.Atoi(p.settings["tcp_keepalives_count"].value)
	idle, interval := p.settings["tcp_keepalives_idle"].seconds(), p.settings["tcp_keepalives_interval"].seconds()
	dead := idle + time.Duration(count)*interval
	finding := Finding{Severity: OK, Found: fmt.Sprintf(
		"the server gives up a client that vanished silently after %v (tcp_keepalives_idle = %v, then %d probes, one "+
			"every %v)",
		dead, idle, count, interval)}
	if dead > longSilence && p.settings["idle_in_transaction_session_timeout"].milliseconds() == 0 {
		finding.Severity = Note
		finding.Why = "for that long a LockTx stays locked whose machine has lost power or network; Lock and Do are " +
			"released after their lease"
		alter := "ALTER ROLE " + p.role + " SET tcp_keepalives_"
		finding.Fix = statements(alter+"idle = 60", alter+"interval = 10", alter+"count = 6")
	}
	return one(finding), nil
}
