package doctor

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/txlock/txlock/internal/locktable"
)

func (m *mysqlServer) lookAtTable(ctx context.Context) ([]Finding, error) {
	kind, engine, shown, err := m.listed(ctx)
	if err != nil {
		return nil, err
	}
	if !shown {
		return m.lookAtSlots(ctx, false)
	}
	if kind != "BASE TABLE" {
		return one(Finding{
			Check: "table-kind", Severity: Failure, Found: m.quoted + " is no table but a " + kind,
			Why: "its rows are locked elsewhere, if at all",
			Fix: renewal("DROP "+strings.TrimPrefix(kind, "SYSTEM ")+" "+m.exact(), m.table),
		}), nil
	}
	findings, err := m.lookAtSlots(ctx, true)
	if err != nil {
		return nil, err
	}
	if engine != "InnoDB" {
		findings = append(findings, Finding{
			Check: "table-engine", Severity: Failure, Found: m.quoted + " has engine " + engine,
			Fix: m.alteration("ENGINE = InnoDB"),
			Why: "only InnoDB locks rows; others take SELECT … FOR UPDATE, and lock nothing that outlives the " +
				"statement",
		})
	}
	indexes, err := m.lookAtIndexes(ctx)
	if err != nil {
		return findings, err
	}
	triggers, err := m.lookAtTriggers(ctx)
	return append(append(findings, indexes...), triggers...), err
}

// listed says what the lock table is. The server does not list a table on which this user has no
// privilege.
func (m *mysqlServer) listed(ctx context.Context) (kind, engine string, shown bool, err error) {
	err = m.conn.QueryRowContext(ctx, "SELECT TABLE_TYPE, COALESCE(ENGINE, '') FROM information_schema.TABLES WHERE "+
		"TABLE_SCHEMA = "+
		quoteText(m.schema)+" AND TABLE_NAME = "+quoteText(m.name)).Scan(&kind, &engine)
	if errors.Is(err, sql.ErrNoRows) {
		return "", "", false, nil
	}
	return kind, engine, err == nil, err
}

// exact is the lock table's name with its database: the administrator may use another one.
func (m *mysqlServer) exact() string { return quoteName(m.schema) + "." + quoteName(m.name) }

// lookAtSlots counts the slots. exists is false if the server does not list the table to this user.
func (m *mysqlServer) lookAtSlots(ctx context.Context, exists bool) ([]Finding, error) {
	var census string
	err := m.conn.QueryRowContext(ctx, locktable.CensusSQL(m.quoted)).Scan(&census)
	switch number(err) {
	case noTablePrivilege, noColumnPrivilege: // lookAtPrivileges reports it
		return nil, nil
	case noSuchTable, unknownColumn, unknownDatabase:
	default:
		if err != nil {
			return nil, err
		}
	}
	if exists || err == nil {
		return one(slots(census, err, m.table, "DROP TABLE "+m.exact())), nil
	}
	return one(missing(err, m.table, m.creation(ctx))), nil
}

// alteration is an ALTER TABLE of the lock table.
func (m *mysqlServer) alteration(changes ...string) Fix {
	return mysqlWait.exclusively("ALTER TABLE " + m.exact() + " " + strings.Join(changes, ", "))
}

func (m *mysqlServer) lookAtIndexes(ctx context.Context) ([]Finding, error) {
	names, err := m.texts(ctx, "SELECT INDEX_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = "+quoteText(
		m.schema)+" AND TABLE_NAME = "+quoteText(m.name)+
		" GROUP BY INDEX_NAME HAVING INDEX_NAME <> 'PRIMARY' OR GROUP_CONCAT(COLUMN_NAME) = 'slot' ORDER BY "+
		"INDEX_NAME <> 'PRIMARY', INDEX_NAME")
	if err != nil {
		return nil, err
	}
	if len(names) == 0 || names[0] != "PRIMARY" {
		return one(Finding{
			Check: "table-primary-key", Severity: Failure, Found: m.quoted + " has no primary key on slot",
			Fix: m.alteration("ADD PRIMARY KEY (slot)"),
			Why: "InnoDB locks what it reads, which without the key is every slot, and several keys in one Mutex are " +
				"an error",
		}), nil
	}
	if len(names) == 1 {
		return nil, nil
	}
	var drops []string
	for _, name := range names[1:] {
		drops = append(drops, "DROP INDEX "+quoteName(name))
	}
	return one(Finding{
		Check: "table-indexes", Severity: Note, Found: m.quoted + " has more indexes than it needs: " +
			strings.Join(names[1:], ", "),
		Why: "no lock uses them; they only take room", Fix: m.alteration(drops...),
	}), nil
}

func (m *mysqlServer) lookAtTriggers(ctx context.Context) ([]Finding, error) {
	names, err := m.texts(ctx, "SELECT TRIGGER_NAME FROM information_schema.TRIGGERS"+
		" WHERE EVENT_OBJECT_SCHEMA = "+quoteText(m.schema)+
		" AND EVENT_OBJECT_TABLE = "+quoteText(m.name)+" ORDER BY TRIGGER_NAME")
	if err != nil || len(names) == 0 {
		return nil, err
	}
	drops := make([]string, len(names))
	for i, name := range names {
		drops[i] = "DROP TRIGGER " + quoteName(m.schema) + "." + quoteName(name)
	}
	return one(Finding{
		Check: "table-triggers", Severity: Note, Found: m.quoted + " has triggers: " + strings.Join(names, ", "),
		Why: "no lock fires them, for none writes; Install does",
		Fix: mysqlWait.exclusively(drops...),
	}), nil
}

func quoteName(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// texts returns the first column of a query's rows.
func (m *mysqlServer) texts(ctx context.Context, query string) ([]string, error) {
	rows, err := m.conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var texts []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return nil, err
		}
		texts = append(texts, text)
	}
	return texts, rows.Err()
}

// fenced returns the tables for tokens. Install derives their names from the lock table's.
func (m *mysqlServer) fenced() (epochs, runs string) {
	stem := strings.TrimSuffix(m.quoted, "`")
	return stem + "_epochs`", stem + "_runs`"
}

// hasFence tells whether Install has created the tables for tokens. The server may hide that: it
// does not even list tables on which this user has no privilege. hidden is then its answer.
func (m *mysqlServer) hasFence(ctx context.Context) (made bool, hidden, err error) {
	epochs, runs := m.fenced()
	for _, table := range []string{epochs, runs} {
		_, err := m.texts(ctx, "SELECT 1 FROM "+table+" LIMIT 1")
		switch {
		case number(err) == noSuchTable || number(err) == unknownDatabase:
			return false, nil, nil
		case denied(err):
			hidden = err
		case err != nil:
			return false, nil, err
		}
	}
	return hidden == nil, hidden, nil
}

// lookAtDurability judges what a crash would undo. No lock writes its row, so only commits and
// tokens depend on the disk.
func (m *mysqlServer) lookAtDurability(ctx context.Context) ([]Finding, error) {
	const name = "innodb_flush_log_at_trx_commit"
	fence, hidden, err := m.hasFence(ctx)
	if err != nil {
		return nil, err
	}
	if value := m.global[name]; value != "1" && (fence || hidden != nil) {
		finding := Finding{
			Severity: Warning, Found: name + " = " + value, Fix: m.set(name, "1"),
			Why: "when the server's machine crashes, the number of the server's run may be drawn a second time, and " +
				"fencing tokens come again",
		}
		if hidden != nil {
			finding.Found += "; whether tokens are installed is not visible to " + m.account
		}
		return one(finding), nil
	}
	return one(Finding{Severity: OK, Found: "locks and tokens need nothing more than " + name + " = " +
		m.global[name]}), nil
}
