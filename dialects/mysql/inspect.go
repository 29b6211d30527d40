package mysql

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/txlock/txlock/dialects"
)

// Inspect implements dialects.Inspector. MySQL lists every row lock in
// performance_schema.data_locks. MariaDB's views name only rows that somebody waits for: see
// findHolders.
func (d *Driver) Inspect(ctx context.Context, table string, slots int, only []int) (
	states []dialects.RowState, err error,
) {
	err = d.withConn(ctx, func(conn *sql.Conn) error {
		s, err := newScene(ctx, conn, table)
		if err != nil {
			return err
		}
		if s.mariadb {
			err = d.lookAtMariaDB(ctx, conn, s, slots, only)
		} else {
			err = lookAtMySQL(ctx, conn, s, only == nil)
		}
		states = s.states()
		return explainPrivilege(err, s.mariadb)
	})
	return states, err
}

// End implements dialects.Inspector.
func (d *Driver) End(ctx context.Context, party dialects.Party) error {
	return d.withConn(ctx, func(conn *sql.Conn) error {
		mariadb, err := isMariaDB(ctx, conn)
		if err != nil {
			return err
		}
		still := isInMySQL
		if mariadb {
			still = d.isInMariaDB
		}
		same, err := still(ctx, conn, party)
		if err != nil {
			return explainPrivilege(err, mariadb)
		}
		if !same {
			return dialects.ErrChanged
		}
		return endSession(ctx, conn, party.Session, mariadb)
	})
}

// endSession ends a session, and waits until the server has rolled its transaction back.
func endSession(ctx context.Context, conn *sql.Conn, session string, mariadb bool) error {
	const patience = 5 * time.Second
	// The privilege to see the locks also shows the sessions of all users.
	left := "SELECT PROCESSLIST_ID FROM performance_schema.threads WHERE PROCESSLIST_ID = "
	if mariadb {
		left = "SELECT ID FROM information_schema.processlist WHERE ID = "
	}
	_, err := conn.ExecContext(ctx, "KILL "+session)
	switch number(err) {
	case noSuchThread:
		return dialects.ErrChanged
	case killDenied:
		return fmt.Errorf("only the session's own user, and users with CONNECTION_ADMIN (MariaDB: CONNECTION ADMIN), "+
			"may end it; on MySQL that takes SYSTEM_USER as well when the session's user has it, as root does: %w", err)
	}
	if err != nil {
		return err
	}
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); ; {
		found, err := grid(ctx, conn, left+session)
		if err != nil || len(found) == 0 {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("session %s was told to end, and had not done so after %v", session, patience)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("session %s was told to end, and had not done so yet: %w", session, ctx.Err())
		}
	}
}

// explainPrivilege says which privilege the views require.
func explainPrivilege(err error, mariadb bool) error {
	var missing string
	switch number(err) {
	default:
		return err
	case noPrivilege, noDatabasePrivilege:
		missing = "GRANT SELECT ON performance_schema.* TO …"
	case noGlobalPrivilege:
		missing = "GRANT PROCESS ON *.* TO …"
	}
	if mariadb {
		missing = "GRANT PROCESS ON *.* TO …"
	}
	return fmt.Errorf("this user may not see who holds locks (%s): %w", missing, err)
}

func isMariaDB(ctx context.Context, conn *sql.Conn) (bool, error) {
	// Every release of MariaDB has its name in @@version.
	found, err := firstColumn(ctx, conn, "SELECT @@version LIKE '%MariaDB%'")
	return len(found) == 1 && found[0] == "1", err
}

// grid is all of a query's result, with "" for NULL.
func grid(ctx context.Context, conn *sql.Conn, query string) (lines [][]string, err error) {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	for rows.Next() {
		line := make([]string, len(columns))
		into := make([]any, len(columns))
		values := make([]sql.NullString, len(columns))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		for i, value := range values {
			line[i] = value.String
		}
		lines = append(lines, line)
	}
	return lines, rows.Err()
}

// views spaces out the readings of InnoDB's views on MariaDB: within 100 ms the server serves an old
// picture. A turn is one picture, so that a reader of one does not wait for a reader of many.
type views struct {
	made sync.Once
	turn chan struct{} // has room for one: the reader, to whom the fields below belong
	last time.Time     // the next picture has to be newer than this
	old  bool          // the last picture was old, because somebody else reads too
}

// enter waits until nobody else of this driver reads. Leave is called after the reading.
func (v *views) enter(ctx context.Context) error {
	v.made.Do(func() { v.turn = make(chan struct{}, 1) })
	select {
	case v.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (v *views) leave() { <-v.turn }

// rest waits until a reading shows the present, unless somebody else reads all the time.
func (v *views) rest(ctx context.Context) error {
	const cached = 105 * time.Millisecond
	spread := 30 * time.Millisecond // so that two readers do not stay in step
	if v.old {
		spread = 300 * time.Millisecond // several that go on reading would keep the picture old for all
	}
	timer := time.NewTimer(time.Until(v.last.Add(cached + rand.N(spread))))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
