// Package installation has the lock table and those beside it, as data, and finds out whether the
// rows of a table can be locked.
package installation

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/sqlconn"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// Tables are those of which it is known that the server locks their rows.
type Tables struct {
	Pool   *client.Pool
	locked sync.Map // by name
}

// Lockable refuses a table whose rows FOR UPDATE does not lock: that is no error of the server's.
// Each table is asked for once, by statements that may have to wait for DDL: hence patience and
// cut, as Await of the pool has them.
func (t *Tables) Lockable(ctx context.Context, q sqlconn.Querier, request dialects.Request, patience time.Duration,
	cut func(),
) error {
	names := []string{request.Table}
	if request.Work.Looks() {
		names = append(names, request.Work.Look.Table)
	}
	for _, name := range names {
		if _, known := t.locked.Load(name); known {
			continue
		}
		quoted, err := sqltext.QuoteTable(name)
		if err != nil {
			return err
		}
		// It knows what the name means in this session, and takes no snapshot, as MySQL's
		// information_schema does. MariaDB leaves the engine out in some sql_modes.
		tag, lines := client.NewTag(), [][]string(nil)
		text := sqltext.OnMariaDB("sql_mode=''") + "SHOW " + sqltext.CommentMark + tag + "*/ CREATE TABLE " + quoted
		err = t.Pool.Await(ctx, false, tag, patience, cut, func(ctx context.Context) (err error) {
			lines, err = sqlconn.Grid(q.QueryContext(ctx, text))
			return err
		})
		switch number := server.Number(err); {
		case number == server.NoPrivilege && request.Column != "":
			return fmt.Errorf("the user is not shown whether %.100s is a table whose rows can be locked: GRANT SELECT "+
				"on all of it: %w", name, server.Classify(err, request))
		case number == server.NoSuchTable, number == server.UnknownDatabase, number == server.NoPrivilege:
			return nil // the next statement says it better
		case err != nil:
			return server.Classify(err, request)
		case len(lines) == 0 || !inInnoDB.MatchString(lines[0][1]):
			return fmt.Errorf("%w: %.100s is a view, a temporary table, which others do not see, or a table of "+
				"another engine than InnoDB: txlock locks rows of InnoDB's alone", dialects.ErrUnsafeEngine, name)
		}
		t.locked.Store(name, true)
	}
	return nil
}

// inInnoDB is how the definition begins, and ends, of a table whose rows can be locked. MySQL names
// a tablespace in a comment.
var inInnoDB = regexp.MustCompile(`(?s)^CREATE TABLE .*\n\) (/\*.*\*/ )?ENGINE=InnoDB\b`)
