package doctor

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/txlock/txlock/internal/locktable"
)

func (m *mysqlServer) lockTable(ctx context.Context, r report) (fine string, err error) {
	kind, engine, shown, err := m.listed(ctx)
	if err == nil && shown && kind != "BASE TABLE" {
		r.named("table-kind").fails(m.quoted+" is no table but a "+kind, "its rows are locked elsewhere, if at all",
			renewal("DROP "+strings.TrimPrefix(kind, "SYSTEM ")+" "+m.exact(), m.table))
		return "", nil
	}
	if err == nil {
		err = m.slots(ctx, r, shown)
	}
	if err != nil || !shown {
		return "", err
	}
	if engine != "InnoDB" {
		r.named("table-engine").fails(m.quoted+" has engine "+engine, "only InnoDB locks rows; others take SELECT … "+
			"FOR UPDATE, and lock nothing that outlives the statement", m.alteration("ENGINE = InnoDB"))
	}
	keys, err := m.texts(ctx, "SELECT INDEX_NAME FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = "+
		quoteText(m.schema)+" AND TABLE_NAME = "+quoteText(m.name)+" AND INDEX_NAME = 'PRIMARY' "+
		"GROUP BY INDEX_NAME HAVING GROUP_CONCAT(COLUMN_NAME) = 'slot'")
	if err == nil && len(keys) == 0 {
		r.named("table-primary-key").fails(m.quoted+" has no primary key on slot", "InnoDB locks what it reads, which "+
			"without the key is every slot, and several keys in one Mutex are an error",
			m.alteration("ADD PRIMARY KEY (slot)"))
	}
	return "", err
}

// listed says what the lock table is. The server does not list a table on which this user has no
// privilege.
func (m *mysqlServer) listed(ctx context.Context) (kind, engine string, shown bool, err error) {
	err = m.conn.QueryRowContext(ctx, "SELECT TABLE_TYPE, COALESCE(ENGINE, '') FROM information_schema.TABLES WHERE "+
		"TABLE_SCHEMA = "+quoteText(m.schema)+" AND TABLE_NAME = "+quoteText(m.name)).Scan(&kind, &engine)
	if errors.Is(err, sql.ErrNoRows) {
		return "", "", false, nil
	}
	return kind, engine, err == nil, err
}

// exact is the lock table's name with its database: the administrator may use another one.
func (m *mysqlServer) exact() string { return quoteName(m.schema) + "." + quoteName(m.name) }

// slots counts the slots. exists is false if the server does not list the table to this user.
func (m *mysqlServer) slots(ctx context.Context, r report, exists bool) error {
	var census string
	err := m.conn.QueryRowContext(ctx, locktable.CensusSQL(m.quoted)).Scan(&census)
	switch number(err) {
	case noTablePrivilege, noColumnPrivilege: // privileges reports it
		return nil
	case noSuchTable, unknownColumn, unknownDatabase:
	default:
		if err != nil {
			return err
		}
	}
	if exists || err == nil {
		r.slots(census, err, m.table, "DROP TABLE "+m.exact())
	} else {
		r.fails("table "+m.table+" is missing: "+err.Error(), slotted, m.creation(ctx))
	}
	return nil
}

// alteration is an ALTER TABLE of the lock table.
func (m *mysqlServer) alteration(change string) Fix {
	return mysqlWait.exclusively("ALTER TABLE " + m.exact() + " " + change)
}

// beside is the name of a table that Install derives from the lock table's.
func (m *mysqlServer) beside(suffix string) string {
	return strings.TrimSuffix(m.quoted, "`") + suffix + "`"
}

// hasFence tells whether Install has created the tables for tokens. The server may hide that: it
// does not even list tables on which this user has no privilege. hidden is then its answer.
func (m *mysqlServer) hasFence(ctx context.Context) (made bool, hidden, err error) {
	for _, table := range []string{m.beside("_epochs"), m.beside("_runs")} {
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
