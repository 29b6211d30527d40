// Package installation has the lock table and those beside it, as data, and finds out whether the
// rows of a table can be locked.
package installation

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
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
func (t *Tables) Lockable(ctx context.Context, q server.Querier, request dialects.Request, patience time.Duration,
	cut func(),
) error {
	names := []string{request.Table}
	if request.Work.Looks() {
		names = append(names, request.Work.Look.Table)
	}
	show := func(format string) (lines [][]string, err error) {
		tag := client.NewTag()
		err = t.Pool.Await(ctx, false, tag, patience, cut, func(ctx context.Context) (err error) {
			lines, err = server.Grid(ctx, q, fmt.Sprintf(format, sqltext.CommentMark+tag+"*/ "))
			return err
		})
		return lines, err
	}
	for _, name := range names {
		if _, known := t.locked.Load(name); known {
			continue
		}
		switch reason, err := t.whyUnlocked(ctx, name, show); {
		case server.Number(err) == server.NoSuchTable, server.Number(err) == server.UnknownDatabase:
			return nil // the next statement says it better
		case err != nil:
			return server.Classify(err, request)
		case reason != "":
			return fmt.Errorf("%w: %.100s is %s", dialects.ErrUnsafeEngine, name, reason)
		}
		t.locked.Store(name, true)
	}
	return nil
}

// Tables of no engine.
const (
	aView     = "a view, which may lock nothing: name the table"
	temporary = "a temporary table, which others do not see"
)

// engineIn finds the engine in a table's definition. MariaDB leaves it out in some sql_modes.
var engineIn = regexp.MustCompile(`(?m)^\) ENGINE=(\w+)`)

// whyUnlocked says what a table is whose rows nobody can lock, or nothing. SHOW CREATE TABLE knows
// what the name means in this session, and takes no snapshot, as MySQL's information_schema does.
func (t *Tables) whyUnlocked(ctx context.Context, name string, show func(format string) ([][]string, error)) (
	reason string, err error,
) {
	quoted, err := sqltext.QuoteTable(name)
	if err != nil {
		return "", err
	}
	lines, err := show(sqltext.OnMariaDB("sql_mode=''") + "SHOW %sCREATE TABLE " +
		strings.ReplaceAll(quoted, "%", "%%"))
	engine := "InnoDB"
	switch {
	case server.Number(err) == server.NoPrivilege:
		engine, err = t.listedEngine(ctx, quoted)
	case err != nil, len(lines) == 0:
	case strings.HasPrefix(lines[0][1], "CREATE TEMPORARY"):
		engine = temporary
	case !strings.HasPrefix(lines[0][1], "CREATE TABLE"):
		engine = aView
	default:
		if found := engineIn.FindStringSubmatch(lines[0][1]); found != nil {
			engine = found[1]
		}
	}
	switch {
	case err != nil || engine == "InnoDB":
		return "", err
	case engine == aView, engine == temporary:
		return engine, nil
	}
	engines, err := show("SHOW %sENGINES") // Engine, Support, Comment, Transactions
	transactions := slices.ContainsFunc(engines, func(line []string) bool {
		return strings.EqualFold(line[0], engine) && line[3] == "YES"
	})
	if err != nil || transactions {
		return "", err
	}
	return "a table of the engine " + engine + ", which locks no rows", nil
}

// listedEngine is for users who may lock a table by a column of it, and are not shown its
// definition. It asks on another connection. If the pool gives none in time, nobody can tell.
func (t *Tables) listedEngine(ctx context.Context, quoted string) (engine string, err error) {
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), fencing.SecondConn)
	defer cancel()
	engine = "InnoDB"
	err = t.Pool.With(brief, func(conn *sql.Conn) error {
		database, err := server.Column(brief, conn, "SELECT DATABASE()")
		if err != nil {
			return err
		}
		listed, err := server.Column(brief, conn, "SELECT COALESCE(ENGINE, '"+aView+"') FROM "+
			"information_schema.TABLES WHERE "+sqltext.TableOf(quoted, database[0]).Is("TABLE_SCHEMA", "TABLE_NAME"))
		if len(listed) == 1 {
			engine = listed[0]
		}
		return err
	})
	if brief.Err() != nil {
		err = nil
	}
	return engine, err
}
