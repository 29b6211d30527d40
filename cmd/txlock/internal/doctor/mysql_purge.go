package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/txlock/txlock"
	txmysql "github.com/txlock/txlock/dialects/mysql"
)

// lookAtPurge looks for transactions that keep InnoDB from removing old row versions. On MySQL only
// one with a snapshot does, which the server does not show: any at REPEATABLE READ may have one. On
// MariaDB one that may write does too, and with it every lock: that was seen on servers, see the
// library's TestInNobodysWay.
func (m *mysqlServer) lookAtPurge(ctx context.Context) ([]Finding, error) {
	transactions, err := m.oldTransactions(ctx)
	if number(err) == noGlobalPrivilege {
		transactions, err = nil, fmt.Errorf("transactions of others are hidden without PROCESS: %w", err)
	}
	if !m.mariaDB {
		if err == nil && len(transactions) == 0 {
			transactions = one(Finding{
				Severity: OK, Found: fmt.Sprintf("no transaction has held back purge for %v", m.long),
			})
		}
		return transactions, err
	}
	if err != nil { // what follows is known all the same
		transactions = one(unseen("purge", err))
	}
	return append(transactions, Finding{
		Severity: Note, Found: "MariaDB purges no old row version while any lock is held or awaited",
		Why: "a row lock for writing gives its transaction a number, and purge stops at the oldest number: a table " +
			"that is updated all the time, and every index of it, grows for as long as one lock lasts. MySQL purges",
		Fix: advice("hold locks for minutes, not for hours, or keep those that last on MySQL or PostgreSQL; " +
			"SHOW ENGINE INNODB STATUS shows the history list length"),
	}), nil
}

func (m *mysqlServer) oldTransactions(ctx context.Context) ([]Finding, error) {
	holds := "t.trx_isolation_level IN ('REPEATABLE READ', 'SERIALIZABLE')"
	if m.mariaDB {
		holds += " OR t.trx_id <> 0"
	}
	rows, err := m.conn.QueryContext(ctx, "SELECT p.ID, p.USER, p.HOST, p.COMMAND, "+
		"TIMESTAMPDIFF(SECOND, t.trx_started, NOW()) FROM information_schema.INNODB_TRX t "+
		"JOIN information_schema.PROCESSLIST p ON p.ID = t.trx_mysql_thread_id "+
		"WHERE p.ID <> CONNECTION_ID() AND ("+holds+") ORDER BY t.trx_started, p.ID")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var old []session
	for rows.Next() {
		var id, user, host, command string
		var seconds int64
		if err := rows.Scan(&id, &user, &host, &command, &seconds); err != nil {
			return nil, err
		}
		if aged := time.Duration(seconds) * time.Second; aged >= m.long {
			state := "running a statement"
			if command == "Sleep" {
				state = "idle"
			}
			old = append(old, session{id, fmt.Sprintf("session %s of %s@%s, %s,", id, user, host, state), aged})
		}
	}
	if err := rows.Err(); err != nil || len(old) == 0 {
		return nil, err
	}
	what, why := "purge", "the history of all tables grows until its transaction ends, and reading gets slower"
	if !m.mariaDB {
		what = "purge, if it has read anything,"
	}
	names := m.ours(ctx)
	var findings []Finding
	for _, s := range old {
		findings = append(findings, s.holdsBack(what, why, names, "KILL "+s.id))
	}
	return findings, nil
}

// ours are the sessions of txlock, with what they lock. It is empty if Inspect does not work here:
// other findings say why.
func (m *mysqlServer) ours(ctx context.Context) map[string]string {
	connector, err := mysql.NewConnector(m.config.Clone())
	if err != nil {
		return nil
	}
	db := sql.OpenDB(connector)
	defer db.Close()
	holdings, err := txlock.New(txmysql.New(db), txlock.WithTable(m.table)).Inspect(ctx)
	if err != nil {
		return nil
	}
	return locksOf(holdings)
}
