package doctor

import (
	"context"
	"strings"
)

// lookAtBinlog looks at how writes are logged.
func (m *mysqlServer) lookAtBinlog(context.Context) ([]Finding, error) {
	const name = "binlog_format"
	switch {
	case m.global["log_bin"] != "ON":
		return one(Finding{Severity: OK, Found: "there is no binary log"}), nil
	case !strings.EqualFold(m.session[name], "STATEMENT"):
		return one(Finding{Severity: OK, Found: "the binary log takes rows where it must"}), nil
	}
	return one(Finding{
		Severity: Failure, Found: name + " = STATEMENT" + m.origin(name), Fix: m.set(name, "ROW"),
		Why: "the server refuses FOR UPDATE at READ COMMITTED, so txlock refuses it (ErrUnsafeEngine)",
	}), nil
}
