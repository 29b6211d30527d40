package sqltext

import (
	"strconv"
	"time"
)

const (
	// Isolation is the variable on MySQL, and on MariaDB, where only version 11.1 and later have it
	// by the same name.
	Isolation = "/*!80001 @@session.transaction_isolation */ /*M! @@session.tx_isolation */"

	// Level is the isolation level of a lock's transaction. A server whose binary log takes nothing
	// but statements refuses every write at READ COMMITTED (error 1665), hence REPEATABLE READ. It
	// is as good for what Do reads: the snapshot comes with the first plain SELECT, and that comes
	// after the grant. It is not for a lock that joins later, which is refused there.
	Level = "IF(" + ByStatement + ", 'REPEATABLE-READ', 'READ-COMMITTED')"

	// ByStatement is whether the session's writes are logged as statements and in no other way.
	ByStatement = "@@log_bin AND @@session.binlog_format = 'STATEMENT'"

	// Writable is the condition under which a shared lock excludes. A server that is read_only
	// grants it, apart from the server that takes the writes, and refuses FOR UPDATE with error
	// 1290. One with innodb_read_only locks nothing. Text is compared: MySQL has numbers, MariaDB
	// words. It is in parentheses for NOT, which binds tighter with HIGH_NOT_PRECEDENCE.
	Writable = "(CONCAT(@@read_only, @@innodb_read_only) IN ('00', 'OFFOFF'))"
)

// Seconds is a lease as the server counts it, rounded up.
func Seconds(lease time.Duration) string {
	return strconv.FormatInt(int64((lease+time.Second-1)/time.Second), 10)
}
