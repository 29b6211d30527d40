package txlock_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/eventually"
)

// count asks the server for a number about the fixture.
func (f *fixture[Tx]) count(t *testing.T, query string) (n int) {
	t.Helper()
	ask := func() { require.NoError(t, f.admin.QueryRow(query, f.label).Scan(&n)) }
	if strings.Contains(query, "innodb_trx") {
		f.views.ask(ask)
	} else {
		ask()
	}
	return n
}

// waiters waits until the server has exactly n waiters of the fixture.
func (f *fixture[Tx]) waiters(t *testing.T, n int) {
	t.Helper()
	eventually.Every(t, fmt.Sprintf("%d waiters", n), f.pollEvery, func() bool { return f.count(t, f.queued) == n })
}

// transactions waits until exactly n sessions of the fixture are in a transaction.
func (f *fixture[Tx]) transactions(t *testing.T, n int) {
	t.Helper()
	eventually.Every(t, fmt.Sprintf("%d transactions", n), f.pollEvery,
		func() bool { return f.count(t, f.sessions) == n })
}

// killSessions ends all sessions of the fixture, as an administrator does.
func (f *fixture[Tx]) killSessions(t *testing.T) {
	t.Helper()
	f.eachSession(t, "pg_terminate_backend", "KILL")
}

// cancelStatements ends what the sessions of the fixture run, and no session, as an administrator
// does.
func (f *fixture[Tx]) cancelStatements(t *testing.T) {
	t.Helper()
	f.eachSession(t, "pg_cancel_backend", "KILL QUERY")
}

// eachSession calls a function about each session of the fixture on PostgreSQL, or runs a statement
// on MySQL and MariaDB.
func (f *fixture[Tx]) eachSession(t *testing.T, function, statement string) {
	t.Helper()
	if f.postgres {
		_, err := f.admin.Exec("SELECT "+function+"(pid) FROM pg_stat_activity WHERE split_part(application_name, "+
			"'#', 1) = $1", f.label)
		require.NoError(t, err)
		return
	}
	rows, err := f.admin.Query("SELECT id FROM information_schema.processlist WHERE db = ?", f.label)
	require.NoError(t, err)
	defer rows.Close()
	for rows.Next() {
		var id int
		require.NoError(t, rows.Scan(&id))
		_, _ = f.admin.Exec(fmt.Sprintf("%s %d", statement, id)) // or it has ended by itself
	}
	require.NoError(t, rows.Err())
}
