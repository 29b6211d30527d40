package records

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Permits does what dialects.Semaphores promises.
func Permits(ctx context.Context, pool *client.Pool, table string, semaphore dialects.Named, n int) (
	p dialects.Permits, err error,
) {
	permits, err := sqltext.Beside(table, locktable.Permits)
	if err != nil {
		return p, err
	}
	hash, name, err := literalsOf(semaphore)
	if err != nil {
		return p, err
	}
	p = dialects.Permits{Semaphore: semaphore.Hash, Table: permits}
	err = complete(ctx, pool, permits, "the permits of semaphore "+semaphore.Hash,
		func(conn *sql.Conn) (insert string, err error) {
			lines, err := server.Grid(ctx, conn, fmt.Sprintf("SELECT id, permit, DATABASE() FROM %s WHERE hash = %s "+
				"AND permit BETWEEN 0 AND %d ORDER BY permit", permits, hash, n-1))
			if err != nil {
				return "", err
			}
			missing := make([]string, 0, n+1)
			for permit := range n {
				if !slices.ContainsFunc(lines, func(line []string) bool { return line[1] == strconv.Itoa(permit) }) {
					missing = append(missing, fmt.Sprintf("(%s%s%d)", hash, name, permit))
				}
			}
			if len(missing) > 0 {
				return "(hash, name, permit) VALUES " +
					strings.Join(append(missing, fmt.Sprintf("(%s%s%d)", hash, name, -n)), ", "), nil
			}
			for _, line := range lines {
				row, err := strconv.Atoi(line[0])
				if err != nil {
					return "", err
				}
				p.Rows = append(p.Rows, row)
			}
			p.Queue = sqltext.QueueName(lines[0][2], permits, lines[0][0])
			return "", nil
		})
	return p, err
}
