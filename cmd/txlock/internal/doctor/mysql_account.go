package doctor

import (
	"context"
	"database/sql"
	"regexp"
	"slices"
	"strings"
)

// privileges tries the statements themselves: MySQL and MariaDB want different privileges for them,
// and grants come in many forms.
func (m *mysqlServer) privileges(ctx context.Context, r report) (fine string, err error) {
	err = m.tryLock(ctx)
	switch {
	case denied(err):
		fix := statements(m.grant(m.name, "SELECT, UPDATE"))
		if _, _, shown, _ := m.listed(ctx); !shown { // the server hides from this user whether the table exists
			fix = fix.only("if the table is missing, first: " + install(m.table))
		}
		r.fails(m.account+" may not lock: "+err.Error(),
			"SELECT … FOR UPDATE needs the privileges, though no lock changes a row", fix)
	case number(err) != 0: // another check finds it
		return "", nil
	case err != nil:
		return "", err
	}
	return m.account + " may lock", m.fence(ctx, r)
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

// fence explains the statements that write the tables for tokens: EXPLAIN needs the privileges of
// the statement itself.
func (m *mysqlServer) fence(ctx context.Context, r report) error {
	const needed = "SELECT, INSERT, DELETE"
	fix := statements(m.grant(m.name+"_epochs", needed), m.grant(m.name+"_runs", needed))
	fence, hidden, err := m.hasFence(ctx)
	if hidden != nil {
		r.warn(m.account+" may not draw tokens, or they are not installed: "+hidden.Error(), drawn,
			fix.only("if they are not, first: "+install(m.table)))
	}
	if err != nil || !fence {
		return err
	}
	for _, statement := range []string{
		"EXPLAIN INSERT INTO " + m.beside("_epochs") + " VALUES ()",
		"EXPLAIN REPLACE INTO " + m.beside("_runs") + " (epoch, server, start) VALUES (0, 0, 0)",
	} {
		rows, err := m.conn.QueryContext(ctx, statement)
		if err == nil {
			err = rows.Close()
		}
		if denied(err) {
			r.warn(m.account+" may not draw tokens: "+err.Error(), drawn, fix)
			return nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// otherKinds looks for privileges that elections, permits, markers and claims need.
func (m *mysqlServer) otherKinds(ctx context.Context, r report) (fine string, err error) {
	grants, err := m.grants(ctx)
	for _, kind := range kinds {
		_, looked := m.texts(ctx, "SELECT 1 FROM "+m.beside(kind.suffix)+" LIMIT 1")
		if number(looked) == noSuchTable || number(looked) == unknownDatabase {
			continue // Install makes it
		}
		var missing []string
		for privilege := range strings.SplitSeq(kind.privileges, ", ") {
			if !slices.ContainsFunc(grants, func(g granted) bool {
				return g.has(privilege) && g.covers(m.schema, m.name+kind.suffix)
			}) {
				missing = append(missing, privilege)
			}
		}
		if list := strings.Join(missing, ", "); list != "" && err == nil {
			r.note(m.account+" has no "+list+" on "+m.beside(kind.suffix), kind.why,
				statements(m.grant(m.name+kind.suffix, list)))
		}
	}
	return m.account + " may use all kinds of locks", err
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
	needed := []string{
		m.grant(m.name, "CREATE, SELECT, INSERT, UPDATE"), m.grant(m.name+"_epochs", drawing),
		m.grant(m.name+"_runs", drawing),
	}
	for _, kind := range kinds {
		needed = append(needed, m.grant(m.name+kind.suffix, "CREATE, "+kind.privileges))
	}
	return permission(m.table, needed...)
}

// status looks for missing privileges and settings that keep txlock status from showing everything.
func (m *mysqlServer) status(ctx context.Context, r report) (fine string, err error) {
	process, instruments := "txlock status does not show when transactions began",
		"txlock status does not work without it"
	if m.mariaDB { // MariaDB shows locks in InnoDB's views only
		process, instruments = instruments, "txlock status shows which process holds a lock, and the key of one that "+
			"nobody waits for, only with it"
	}
	_, err = m.texts(ctx, "SELECT 1 FROM information_schema.INNODB_TRX LIMIT 1")
	if number(err) == noGlobalPrivilege {
		r.note(m.account+" has no PROCESS", process, statements("GRANT PROCESS ON *.* TO "+m.account))
	} else if err != nil {
		return "", err
	}
	_, err = m.texts(ctx, "SELECT 1 FROM performance_schema.threads LIMIT 1")
	switch {
	case m.global["performance_schema"] == "OFF":
		r.note("performance_schema = OFF", instruments, configured("performance_schema", "ON"))
	case denied(err):
		r.note(m.account+" may not read performance_schema", instruments,
			statements("GRANT SELECT ON performance_schema.* TO "+m.account))
	case err != nil:
		return "", err
	}
	grants, err := m.grants(ctx)
	may := func(g granted) bool {
		return g.on == "*.*" && (g.has("SUPER") || g.has("CONNECTION_ADMIN") || g.has("CONNECTION ADMIN"))
	}
	if err == nil && !slices.ContainsFunc(grants, may) {
		privilege := "CONNECTION_ADMIN"
		if m.mariaDB {
			privilege = "CONNECTION ADMIN"
		}
		r.note(m.account+" has no "+privilege, "txlock break ends sessions of this user only; give the privilege to "+
			"a user who breaks, and not to one who locks: read_only does not stop who has it",
			statements("GRANT "+privilege+" ON *.* TO "+m.account))
	}
	return m.account + " sees the sessions of all users, and may end those of others", err
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
