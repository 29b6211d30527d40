package installation

import (
	"context"
	"fmt"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Ping does what dialects.Driver promises.
func Ping(ctx context.Context, pool *client.Pool, table string) error {
	quoted, err := sqltext.QuoteTable(table)
	if err != nil {
		return err
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := pool.Identify(ctx, conn.Conn); err != nil {
		return err
	}
	answer, err := conn.ReadNow(ctx, "SELECT CONCAT_WS(' ', "+client.ReadsNow+", IF("+sqltext.Writable+", 1, 0), "+
		"(SELECT COUNT(*) FROM (SELECT slot FROM "+quoted+" LIMIT 1) AS slots), CONCAT(@@hostname, ':', @@port))")
	if err != nil {
		server.Destroy(conn.Conn) // with whatever was open on it
		return server.Ours(err, table)
	}
	fields := strings.Fields(strings.Join(answer, ""))
	switch {
	case len(fields) != 4:
		return fmt.Errorf("bug: no answer to a ping: %q", answer)
	case fields[1] == "0":
		return fmt.Errorf("%w: the server %s is read_only, and takes no writes", dialects.ErrUnsafeEngine, fields[3])
	case fields[2] == "0":
		_, err = locktable.Census{}.Seeded(table)
	}
	return err
}
