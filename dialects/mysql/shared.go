package mysql

import (
	"context"
	"errors"
	"fmt"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/missing"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// writable is the condition under which a shared lock excludes. A server that is read_only
// grants it, apart from the server that takes the writes, and refuses FOR UPDATE with error
// 1290. One with innodb_read_only locks nothing. Text is compared: MySQL has numbers, MariaDB
// words. It is in parentheses for NOT, which binds tighter with HIGH_NOT_PRECEDENCE.
const writable = "(CONCAT(@@read_only, @@innodb_read_only) IN ('00', 'OFFOFF'))"

// mode is how request locks its rows.
func mode(request dialects.Request) string {
	if request.Shared {
		return sqltext.Sharing
	}
	return sqltext.Owning
}

// andWritable goes behind the condition of a statement that locks the rows of request.
func andWritable(request dialects.Request) string {
	if request.Shared {
		return " AND " + writable
	}
	return ""
}

// refusesWrites says whether err is that of a server which is read only, as a former primary is.
func refusesWrites(err error) bool {
	switch server.Number(err) {
	case server.OnlyReads, server.ReadOnlyMode:
		return true
	}
	return errors.Is(err, dialects.ErrUnsafeEngine)
}

// explainReadOnly is failed, unless request shares and the server is read only.
func explainReadOnly(ctx context.Context, q querier, request dialects.Request, failed error) error {
	if !request.Shared || !errors.Is(failed, missing.ErrRows) {
		return failed
	}
	name, err := firstColumn(ctx, q, "SELECT CONCAT(@@hostname, ':', @@port) FROM DUAL WHERE NOT "+writable)
	if err != nil || len(name) == 0 {
		return failed
	}
	return fmt.Errorf("%w: the server %s is read_only, where a shared lock excludes nobody: connect to the server "+
		"that takes the writes", dialects.ErrUnsafeEngine, name[0])
}
