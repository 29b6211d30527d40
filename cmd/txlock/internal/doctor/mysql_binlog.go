package doctor

import (
	"context"
	"strings"
)

// onlyStatements tells whether the binary log takes statements and nothing else.
func (m *mysqlServer) onlyStatements() bool {
	return m.global["log_bin"] == "ON" && strings.EqualFold(m.session["binlog_format"], "STATEMENT")
}

// lookAtBinlog looks at how writes are logged.
func (m *mysqlServer) lookAtBinlog(context.Context) ([]Finding, error) {
	const name = "binlog_format"
	switch {
	case m.global["log_bin"] != "ON":
		return one(Finding{Severity: OK, Found: "there is no binary log"}), nil
	case !m.onlyStatements():
		return one(Finding{Severity: OK, Found: "the binary log takes rows where it must"}), nil
	}
	return one(Finding{
		Severity: Warning, Found: name + " = STATEMENT" + m.origin(name), Fix: m.set(name, "ROW"),
		Why: "the server refuses writes and FOR UPDATE at READ COMMITTED. So Do runs at REPEATABLE READ, its work " +
			"may take no second lock (ErrIsolation), and LockTx needs REPEATABLE READ too",
	}), nil
}
