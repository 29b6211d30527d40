package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// lookAtPrivileges tries the statements themselves: MySQL and MariaDB want different privileges for
// them, and grants come in many forms.
func (m *mysqlServer) lookAtPrivileges(ctx context.Context) ([]Finding, error) {
	var findings []Finding
	err := m.tryLock(ctx)
	switch {
	case denied(err):
		fix := statements(m.grant(m.name, "SELECT, UPDATE"))
		if _, _, shown, _ := m.listed(ctx); !shown { // the server hides from this user whether the table exists
			fix = fix.only("if the table is missing, first: " + install(m.table))
		}
		findings = one(Finding{
			Severity: Failure, Found: m.account + " may not lock: " + err.Error(),
			Why: "SELECT … FOR UPDATE needs the privileges, though no lock changes a row",
			Fix: fix,
		})
	case number(err) != 0: // another check finds it
		return nil, nil
	case err != nil:
		return nil, err
	}
	fence, err := m.lookAtFence(ctx)
	findings = append(findings, fence...)
	if err != nil || len(findings) > 0 {
		return findings, err
	}
	return one(Finding{Severity: OK, Found: m.account + " may lock"}), nil
}

func (m *mysqlServer) tryLock(ctx context.Context) error {
	tx, err := m.conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	var slot int
	err = tx.QueryRowContext(ctx, "SELECT slot FROM "+m.quoted+" WHERE slot = 0 FOR UPDATE SKIP LOCKED").Scan(&slot)
	if err == sql.ErrNoRows {
		return nil
	}
	return err
}

// lookAtFence explains the statements that write the tables for tokens: EXPLAIN needs the
// privileges of the statement itself.
func (m *mysqlServer) lookAtFence(ctx context.Context) ([]Finding, error) {
	fence, hidden, err := m.hasFence(ctx)
	if hidden != nil {
		finding := m.tokenless("may not draw tokens, or they are not installed: " + hidden.Error())
		finding.Fix = finding.only("if they are not, first: " + install(m.table))
		return one(finding), nil
	}
	if err != nil || !fence {
		return nil, err
	}
	epochs, runs := m.fenced()
	for _, statement := range []string{
		"EXPLAIN INSERT INTO " + epochs + " VALUES ()",
		"EXPLAIN REPLACE INTO " + runs + " (epoch, server, start) VALUES (0, 0, 0)",
	} {
		rows, err := m.conn.QueryContext(ctx, statement)
		if err == nil {
			err = rows.Close()
		}
		if denied(err) {
			return one(m.tokenless("may not draw tokens: " + err.Error())), nil
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// tokenless is the finding for an account that cannot draw tokens.
func (m *mysqlServer) tokenless(found string) Finding {
	const needed = "SELECT, INSERT, DELETE"
	return Finding{
		Severity: Warning, Found: m.account + " " + found, Why: drawn,
		Fix: statements(m.grant(m.name+"_epochs", needed), m.grant(m.name+"_runs", needed)),
	}
}

// grant is the statement that gives this account privileges on a table in the lock table's
// database.
func (m *mysqlServer) grant(table, privileges string) string {
	return "GRANT " + privileges + " ON " + quoteName(m.schema) + "." + quoteName(table) + " TO " + m.account
}

// creation makes a lock table that does not exist. An account without CREATE is first granted what
// Install and locks need.
func (m *mysqlServer) creation(ctx context.Context) Fix {
	grants, err := m.grants(ctx)
	may := func(g granted) bool { return g.has("CREATE") && g.covers(m.schema, m.name) }
	if err != nil || slices.ContainsFunc(grants, may) { // the error of Install says more
		return command(install(m.table))
	}
	const drawing = "CREATE, SELECT, INSERT, DELETE"
	return permission(m.table, m.grant(m.name, "CREATE, SELECT, INSERT, UPDATE"), m.grant(m.name+"_epochs", drawing),
		m.grant(m.name+"_runs", drawing), m.grant(m.name+"_leaders", "CREATE, SELECT, INSERT, UPDATE"),
		m.grant(m.name+"_once", "CREATE, SELECT, INSERT, UPDATE, DELETE"),
		m.grant(m.name+"_permits", "CREATE, SELECT, INSERT, UPDATE"),
		m.grant(m.name+"_claims", "CREATE, SELECT, INSERT, UPDATE, DELETE"))
}

func (m *mysqlServer) lookAtConnections(ctx context.Context) ([]Finding, error) {
	status, err := m.variables(ctx, "SHOW GLOBAL STATUS LIKE 'Threads_connected'")
	if err != nil {
		return nil, err
	}
	used, _ := strconv.Atoi(status["Threads_connected"])
	most, _ := strconv.Atoi(m.global["max_connections"])
	rooms := []room{{most, used, "the server", m.set("max_connections", strconv.Itoa(2*most))}}
	if limit, _ := strconv.Atoi(m.session["max_user_connections"]); limit > 0 {
		var mine int
		err := m.conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE USER = "+
			"SUBSTRING_INDEX(USER(), '@', 1)").Scan(&mine)
		if err != nil {
			return nil, err
		}
		fix := statements(fmt.Sprintf("ALTER USER %s WITH MAX_USER_CONNECTIONS %d", m.account, max(50, 2*limit)))
		rooms = append(rooms, room{limit, mine, m.account, fix})
	}
	return one(connections(rooms...)), nil
}

// moreSessions is the remedy for a refused connection. The error says whose limit it was. An
// account's own limit takes precedence over the limit of all accounts. There may be no session to
// ask for more.
func (m *mysqlServer) moreSessions(refusal error) Fix {
	switch {
	case number(refusal) == tooManySessions:
		return advice("end sessions that are not needed, use smaller pools, or give the server a larger " +
			"max_connections")
	case m.account == "":
		return statements("ALTER USER " + quoteText(m.config.User) + "@'%' WITH MAX_USER_CONNECTIONS 50").only(
			"with the host that the account has, if it is another:")
	}
	return statements("ALTER USER " + m.account + " WITH MAX_USER_CONNECTIONS 50")
}

// lookAtStatus looks for missing privileges and settings that keep txlock status from showing
// everything.
func (m *mysqlServer) lookAtStatus(ctx context.Context) ([]Finding, error) {
	var findings []Finding
	add := func(found, why string, fix Fix) {
		findings = append(findings, Finding{Severity: Note, Found: found, Why: why, Fix: fix})
	}
	process, instruments := "txlock status does not show when transactions began",
		"txlock status does not work without it"
	if m.mariaDB { // MariaDB shows locks in InnoDB's views only
		process, instruments = instruments, "txlock status shows which process holds a lock, and the key of one that "+
			"nobody waits for, only with it"
	}
	if _, err := m.texts(ctx, "SELECT 1 FROM information_schema.INNODB_TRX LIMIT 1"); number(err) == noGlobalPrivilege {
		add(m.account+" has no PROCESS", process, statements("GRANT PROCESS ON *.* TO "+m.account))
	} else if err != nil {
		return nil, err
	}
	if m.global["performance_schema"] == "OFF" {
		add("performance_schema = OFF", instruments, configured("performance_schema", "ON"))
	} else if _, err := m.texts(ctx, "SELECT 1 FROM performance_schema.threads LIMIT 1"); denied(err) {
		add(m.account+" may not read performance_schema", instruments,
			statements("GRANT SELECT ON performance_schema.* TO "+m.account))
	} else if err != nil {
		return nil, err
	}
	may, allOf, err := m.mayEndSessions(ctx)
	if err != nil {
		return nil, err
	}
	if !may {
		privilege := "CONNECTION_ADMIN"
		if m.mariaDB {
			privilege = "CONNECTION ADMIN"
		}
		add(m.account+" has no "+privilege, "txlock break ends sessions of this user only; give the privilege to a "+
			"user who breaks, and not to one who locks: read_only does not stop who has it",
			statements("GRANT "+privilege+" ON *.* TO "+m.account))
	}
	if len(findings) == 0 {
		finding := Finding{Severity: OK, Found: m.account + " sees the sessions of all users, and may end them"}
		if !allOf {
			finding.Found = m.account + " sees the sessions of all users, and may end those of users without " +
				"SYSTEM_USER"
		}
		findings = one(finding)
	}
	return findings, nil
}

// mayEndSessions reads the user's grants, including those of its active roles. may tells whether
// the user may end sessions of others, allOf whether it may end all of them: MySQL protects users
// with SYSTEM_USER from users without it.
func (m *mysqlServer) mayEndSessions(ctx context.Context) (may, allOf bool, err error) {
	grants, err := m.grants(ctx)
	if err != nil {
		return false, false, err
	}
	allOf = m.mariaDB || before(m.version, [3]int{8, 0, 16})
	for _, g := range grants {
		if g.on == "*.*" {
			may = may || g.has("SUPER") || g.has("CONNECTION_ADMIN") || g.has("CONNECTION ADMIN")
			allOf = allOf || g.has("SYSTEM_USER")
		}
	}
	return may, allOf, nil
}

// granted is one grant: privileges, and what they are on.
type granted struct {
	privileges []string
	on         string // as SHOW GRANTS spells it: *.*, `database`.* or `database`.`table`
}

// grants returns the grants of the user and of its active roles.
func (m *mysqlServer) grants(ctx context.Context) ([]granted, error) {
	texts, err := m.texts(ctx, "SHOW GRANTS")
	if err != nil {
		return nil, err
	}
	var grants []granted
	for _, text := range texts {
		privileges, object, found := strings.Cut(strings.TrimPrefix(text, "GRANT "), " ON ")
		if on, _, whole := strings.Cut(object, " TO "); found && whole {
			grants = append(grants, granted{strings.Split(privileges, ", "), on})
		}
	}
	return grants, nil
}

func (g granted) has(privilege string) bool {
	return slices.Contains(g.privileges, privilege) || slices.Contains(g.privileges, "ALL PRIVILEGES")
}

// covers tells whether the grant applies to a table. The database in a grant is a LIKE pattern.
func (g granted) covers(schema, table string) bool {
	if g.on == "*.*" {
		return true
	}
	database, whole := strings.CutSuffix(g.on, ".*")
	if !whole {
		on, name := parts(g.on)
		return on == schema && name == table
	}
	_, pattern := parts(database)
	like := strings.NewReplacer(`\\_`, "_", `\\%`, "%", "_", ".", "%", ".*").Replace(regexp.QuoteMeta(pattern))
	matched, err := regexp.MatchString("^(?s:"+like+")$", schema)
	return err == nil && matched
}
