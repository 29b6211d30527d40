package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/fencing"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// tables are those of which it is known that the server locks their rows.
type tables struct {
	mu     sync.RWMutex
	locked map[string]bool
}

func (t *tables) known(name string) bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.locked[name]
}

func (t *tables) add(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.locked == nil {
		t.locked = map[string]bool{}
	}
	t.locked[name] = true
}

// lockable refuses a table whose rows FOR UPDATE does not lock: that is no error of the server's.
// Each table is asked for once.
func (d *Driver) lockable(ctx context.Context, at place, request dialects.Request) error {
	names := []string{request.Table}
	if request.Marker != nil {
		markers, err := markersOf(request.Marker.Table)
		if err != nil {
			return err
		}
		names = append(names, markers)
	}
	for _, name := range names {
		if d.tables.known(name) {
			continue
		}
		switch reason, err := d.whyUnlocked(ctx, at, name); {
		case server.Number(err) == server.NoSuchTable, server.Number(err) == server.UnknownDatabase:
			return nil // the next statement says it better
		case err != nil:
			return server.Classify(err, request)
		case reason != "":
			return fmt.Errorf("%w: %.100s is %s", dialects.ErrUnsafeEngine, name, reason)
		}
		d.tables.add(name)
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
func (d *Driver) whyUnlocked(ctx context.Context, at place, name string) (reason string, err error) {
	quoted, err := sqltext.QuoteTable(name)
	if err != nil {
		return "", err
	}
	lines, err := d.show(ctx, at, sqltext.OnMariaDB("sql_mode=''")+"SHOW %sCREATE TABLE "+
		strings.ReplaceAll(quoted, "%", "%%"))
	engine := "InnoDB"
	switch {
	case server.Number(err) == server.NoPrivilege:
		engine, err = d.listedEngine(ctx, quoted)
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
	engines, err := d.show(ctx, at, "SHOW %sENGINES") // Engine, Support, Comment, Transactions
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
func (d *Driver) listedEngine(ctx context.Context, quoted string) (engine string, err error) {
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), fencing.SecondConn)
	defer cancel()
	engine = "InnoDB"
	err = d.from().With(brief, func(conn *sql.Conn) error {
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

// show reads what a statement of the server's shows. It may have to wait, for DDL.
func (d *Driver) show(ctx context.Context, at place, format string) (lines [][]string, err error) {
	tag := client.NewTag()
	err = d.pool.Await(ctx, false, tag, at.interruptible(), at.cut, func(ctx context.Context) (err error) {
		lines, err = server.Grid(ctx, at, fmt.Sprintf(format, sqltext.CommentMark+tag+"*/ "))
		return err
	})
	return lines, err
}
