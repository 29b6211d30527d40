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
		return " AND " + sqltext.Writable
	}
	return ""
}

// refusesWrites says whether err is that of a server which is read only, as a former primary is.
func refusesWrites(err error) bool {
	switch server.Number(err) {
	case server.OnlyReads, server.ReadOnlyMode, server.NodeNotReady:
		return true
	}
	return errors.Is(err, dialects.ErrUnsafeEngine)
}

// explainReadOnly is failed, unless request shares and the server is read only.
func explainReadOnly(ctx context.Context, q server.Querier, request dialects.Request, failed error) error {
	if !request.Shared || !errors.Is(failed, missing.ErrRows) {
		return failed
	}
	name, err := server.Column(ctx, q, "SELECT CONCAT(@@hostname, ':', @@port) FROM DUAL WHERE IF("+sqltext.Writable+
		", 0, 1)")
	if err != nil || len(name) == 0 {
		return failed
	}
	return fmt.Errorf("%w: the server %s is read_only, where a shared lock excludes nobody: connect to the server "+
		"that takes the writes", dialects.ErrUnsafeEngine, name[0])
}
