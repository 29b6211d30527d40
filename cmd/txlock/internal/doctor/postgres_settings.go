package doctor

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
)

// setting is a row of pg_settings.
type setting struct{ name, value, source string }

// period is the value of a setting that counts units of time.
func (s setting) period(unit time.Duration) time.Duration {
	n, _ := strconv.Atoi(s.value)
	return time.Duration(n) * unit
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
	rows, _ := p.conn.Query(ctx, "SELECT name, setting, source FROM pg_settings WHERE setting IS NOT NULL")
	settings := map[string]setting{}
	var s setting
	_, err := pgx.ForEachRow(rows, []any{&s.name, &s.value, &s.source}, func() error {
		settings[s.name] = s
		return nil
	})
	return settings, err
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

func (p *postgresServer) session(_ context.Context, r report) (fine string, err error) {
	for _, needed := range needed {
		r := r.named(kebab(needed.name))
		value, unfit := p.unfit[needed.name]
		if !unfit {
			r.ok(needed.name + " = " + needed.value)
			continue
		}
		fix := statements(fmt.Sprintf("ALTER ROLE %s IN DATABASE %s SET %s = '%s'", p.role, p.database, needed.name,
			needed.value))
		if p.config.ConnConfig.RuntimeParams[needed.name] != "" {
			fix = removal(needed.name)
		}
		r.fails(needed.name+" = "+value,
			"every call on such a connection is an error; postgres.Open asks for what serves", fix)
	}
	return "", nil
}

var postgresLimits = []limit{
	{
		name: "statement_timeout", short: Warning, long: Warning, heal: "0",
		why: "a wait for a lock is one statement: one that takes longer ends with ErrNotAcquired. So does, with the " +
			"server's error, a long statement of the work",
	},
	{
		name: "lock_timeout", short: Warning, long: Warning, heal: "0",
		why: "a wait for a lock that Within does not limit ends with ErrNotAcquired when it is over",
	},
	{ // came with PostgreSQL 17
		name: "transaction_timeout", short: Warning, long: Warning, heal: "0",
		why: "a lock is a transaction: the server ends the session of a wait, a Do or a Lock of Rows that takes " +
			"longer, and the lock is lost with ErrLost; a Lock of keys is renewed every minute, so it is lost only " +
			"with less than that",
	},
	{
		name: "idle_in_transaction_session_timeout", short: Warning, long: Note, heal: "'5min'",
		besides: "; Lock and Do set their own, the lease",
		why:     "a LockTx whose transaction sends no statement for that long loses its lock, and the transaction",
	},
	{
		name: "idle_session_timeout", short: Note, long: Note, heal: "0",
		why: "it ends no lock, only connections that wait in the pool: txlock sees that and replaces them, which " +
			"costs a connect",
	},
}

func (p *postgresServer) timeouts(_ context.Context, r report) (fine string, err error) {
	for _, limit := range postgresLimits {
		if s, known := p.settings[limit.name]; known {
			r.limit(limit, s.period(time.Millisecond), s.origin(), p.set)
		}
	}
	return "", nil
}

func (p *postgresServer) isolation(_ context.Context, r report) (fine string, err error) {
	s := p.settings["default_transaction_isolation"]
	found := fmt.Sprintf("transactions begin at %s%s", s.value, s.origin())
	if s.value == "repeatable read" || s.value == "serializable" {
		r.warn(found, "LockTx refuses such a transaction with ErrIsolation, because it would read what was there "+
			"before its lock; Lock and Do set their own level", p.set(s.name, "'read committed'"))
	}
	return found, nil
}

func (p *postgresServer) readOnly(ctx context.Context, r report) (fine string, err error) {
	var standby bool
	err = p.conn.QueryRow(ctx, "SELECT pg_is_in_recovery()").Scan(&standby)
	if s := p.settings["default_transaction_read_only"]; standby {
		r.fails("this server is a standby", "a standby locks no rows; only the primary does",
			advice("add target_session_attrs=read-write to the connection string, and name the primary in it"))
	} else if s.value == "on" {
		r.warn(s.name+" = on"+s.origin(), "SELECT … FOR UPDATE is refused in a read-only transaction, and with it "+
			"LockTx; Lock and Do begin their own, READ WRITE", p.set(s.name, "off"))
	}
	return "the server takes writes", err
}
