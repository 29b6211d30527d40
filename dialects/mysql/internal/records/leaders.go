package records

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Seats does what dialects.Electorate promises.
func Seats(ctx context.Context, pool *client.Pool, table string, election dialects.Named, create bool) (
	s dialects.Seats, err error,
) {
	leaders, err := sqltext.Beside(table, locktable.Leaders)
	if err != nil {
		return s, err
	}
	hash, name, err := literalsOf(election)
	if err != nil {
		return s, err
	}
	err = complete(ctx, pool, leaders, "the rows of election "+election.Hash+" in "+leaders,
		func(conn *sql.Conn) (insert string, err error) {
			parts, err := server.Column(ctx, conn, "SELECT CONCAT(part, ' ', id) FROM "+leaders+" WHERE hash = "+hash)
			if err != nil {
				return "", err
			}
			ids := map[string]string{}
			for _, part := range parts {
				kind, id, _ := strings.Cut(part, " ")
				ids[kind] = id
			}
			switch {
			case len(ids) == 3:
				s = dialects.Seats{
					Election: election.Hash, Table: leaders,
					Seat: ids["seat"], Record: ids["record"], Office: ids["office"],
				}
				return "", nil
			case !create:
				return "", nil
			}
			return "(hash, name, part) VALUES (" + hash + name + "'seat'), (" + hash + name + "'record'), (" + hash +
				name + "'office')", nil
		})
	return s, err
}

// Appoint does what dialects.Electorate promises. The writer may have been stopped since it got the
// seat. Then a later one has written the record, or is to.
func Appoint(ctx context.Context, pool *client.Pool, seats dialects.Seats, identity string, term int64) error {
	name, err := sqltext.Literal(dialects.Value{Text: identity})
	if err != nil {
		return err
	}
	row, err := sqltext.Literal(dialects.Value{Text: seats.Election + " record"})
	if err != nil {
		return err
	}
	// Not by the column alone: MariaDB would go by its index, and wait for the seat's row as well.
	record := " WHERE id = " + seats.Record + " AND CONCAT(hash, ' ', part) = " + row
	return pool.With(ctx, func(conn *sql.Conn) error {
		changed, err := alone(ctx, conn,
			fmt.Sprintf("UPDATE %s SET identity = %s, term = %d, since = UTC_TIMESTAMP(6)%s AND term < %[3]d",
				seats.Table, name, term, record))
		if err != nil {
			return server.Ours(err, seats.Table)
		}
		if changed == 1 {
			return nil
		}
		written, err := server.Column(ctx, conn, "SELECT term FROM "+seats.Table+record)
		switch {
		case err != nil:
			return err
		case len(written) == 0:
			return fmt.Errorf("%w: the record of election %s is gone", dialects.ErrNoRow, seats.Election)
		}
		return fmt.Errorf("%w: the record of election %s has term %s, and not a smaller one than %d", dialects.ErrLost,
			seats.Election, written[0], term)
	})
}

// leaderSQL is one statement. It first tries the lock of the office, and then reads the record, by
// conditions that the server takes for a range, and not for a look-up by a unique key: that it
// would read before it begins. So what it reads is of the holder that it met, or of one that came
// after it: never of one that had gone before. Behind what the record says it tells whether the
// session has begun a transaction with that, and whether this server only reads: there nobody holds
// a lock.
func leaderSQL(seats dialects.Seats) (string, error) {
	row, err := sqltext.Literal(dialects.Value{Text: seats.Election + " record"})
	return sqltext.OnMariaDB(sqltext.SomeWait) + "(SELECT '" + freeMark + "' FROM " + seats.Table + " WHERE id = " +
		seats.Office + " " + sqltext.Sharing + sqltext.SkipLocked + ") UNION ALL (SELECT CONCAT_WS(' ', " +
		"@@autocommit + 0, IF(" + sqltext.Writable + ", 0, 1), term, since, HEX(identity)) FROM " + seats.Table +
		" WHERE id BETWEEN " + seats.Record + " AND " + seats.Record +
		" + 0 AND CONCAT(hash, ' ', part) = " + row + ")", err
}

const freeMark = "free"

// errReadOnly is for a server that does not show the locks of its primary.
var errReadOnly = errors.New("this server only reads, and does not know who leads: ask the primary")

// Leader does what dialects.Electorate promises.
func Leader(ctx context.Context, pool *client.Pool, seats dialects.Seats) (leader dialects.Leader, err error) {
	query, err := leaderSQL(seats)
	if err != nil {
		return leader, err
	}
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return leader, err
	}
	defer conn.Close()
	sent := query
	if conn.Several {
		sent = "COMMIT; " + query + "; ROLLBACK" // as leaderOn
	}
	answer, err := server.Column(ctx, conn.Conn, sent)
	if err != nil {
		server.Destroy(conn.Conn) // with whatever was open on it
		return leader, server.Ours(err, seats.Table)
	}
	leader, began, err := leaderIn(answer, seats)
	if errors.Is(err, dialects.ErrNoRow) && !conn.Several {
		server.Destroy(conn.Conn) // it may have begun a transaction
	}
	if began && !conn.Several {
		// The connection was given with autocommit=0. The answer may be an older transaction's.
		return leaderOn(ctx, conn.Conn, query, seats)
	}
	return leader, err
}

// leaderOn asks again, in a transaction of its own. What the connection was left with is committed,
// as START TRANSACTION would.
func leaderOn(ctx context.Context, conn *sql.Conn, query string, seats dialects.Seats) (
	leader dialects.Leader, err error,
) {
	var answer []string
	if _, err = conn.ExecContext(ctx, "COMMIT"); err == nil {
		answer, err = server.Column(ctx, conn, query)
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, "ROLLBACK")
	}
	if err != nil {
		server.Destroy(conn)
		return leader, server.Ours(err, seats.Table)
	}
	leader, _, err = leaderIn(answer, seats)
	return leader, err
}

// leaderIn reads the answer to leaderSQL. began says that a transaction is open since.
func leaderIn(answer []string, seats dialects.Seats) (leader dialects.Leader, began bool, err error) {
	free, record := false, []string(nil)
	for _, row := range answer {
		if row == freeMark {
			free = true
		} else {
			record = strings.Fields(row)
		}
	}
	if len(record) < 3 {
		return leader, false, fmt.Errorf("%w: the record of election %s is gone", dialects.ErrNoRow, seats.Election)
	}
	began = record[0] == "0"
	switch {
	case free && record[1] != "0":
		return leader, began, errReadOnly
	case free, len(record) < 6: // or it is locked, and nobody has led yet
		return leader, began, dialects.ErrNoLeader
	}
	leader.Term, err = strconv.ParseInt(record[2], 10, 64)
	if err == nil {
		leader.Since, err = time.Parse("2006-01-02 15:04:05.999999", record[3]+" "+record[4])
	}
	if err == nil {
		var identity []byte
		identity, err = hex.DecodeString(record[5])
		leader.Identity = string(identity)
	}
	return leader, began, err
}
