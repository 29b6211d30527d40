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
)

// Appoint does what dialects.Keeper promises. The writer may have been stopped since it got the
// seat. Then a later one has written the record, or is to.
func (k Keeper) Appoint(ctx context.Context, election dialects.Rows, identity string, term int64) error {
	name, err := sqltext.Literal(dialects.Value{Text: identity})
	if err != nil {
		return err
	}
	row, err := sqltext.Literal(dialects.Value{Text: election.Hash + " record"})
	if err != nil {
		return err
	}
	// Not by the column alone: MariaDB would go by its index, and wait for the seat's row as well.
	record := " WHERE id = " + election.Number(dialects.Record) + " AND CONCAT(hash, ' ', part) = " + row
	return k.pool.With(ctx, func(conn *sql.Conn) error {
		changed, err := alone(ctx, conn,
			fmt.Sprintf("UPDATE %s SET identity = %s, term = %d, since = UTC_TIMESTAMP(6)%s AND term < %[3]d",
				election.Table, name, term, record))
		if err != nil {
			return server.Ours(err, election.Table)
		}
		if changed == 1 {
			return nil
		}
		written, err := server.Column(ctx, conn, "SELECT term FROM "+election.Table+record)
		switch {
		case err != nil:
			return err
		case len(written) == 0:
			return fmt.Errorf("%w: the record of election %s is gone", dialects.ErrNoRow, election.Hash)
		}
		return fmt.Errorf("%w: the record of election %s has term %s, and not a smaller one than %d", dialects.ErrLost,
			election.Hash, written[0], term)
	})
}

// leaderSQL is one statement. It first tries the lock of the office, and then reads the record, by
// conditions that the server takes for a range, and not for a look-up by a unique key: that it
// would read before it begins. So what it reads is of the holder that it met, or of one that came
// after it: never of one that had gone before. In front of what the record says it tells whether
// this server only reads: there nobody holds a lock.
func leaderSQL(election dialects.Rows) (string, error) {
	row, err := sqltext.Literal(dialects.Value{Text: election.Hash + " record"})
	record := election.Number(dialects.Record)
	return sqltext.OnMariaDB(sqltext.SomeWait) + "(SELECT " + client.ReadsNow + ") UNION ALL (SELECT '" + freeMark +
		"' FROM " + election.Table + " WHERE id = " + election.Number(dialects.Office) + " " + sqltext.Sharing +
		sqltext.SkipLocked + ") UNION ALL (SELECT CONCAT_WS(' ', IF(" + sqltext.Writable + ", 0, 1), term, since, " +
		"HEX(identity)) FROM " + election.Table + " WHERE id BETWEEN " + record + " AND " + record +
		" + 0 AND CONCAT(hash, ' ', part) = " + row + ")", err
}

const freeMark = "free"

// errReadOnly is for a server that does not show the locks of its primary.
var errReadOnly = errors.New("this server only reads, and does not know who leads: ask the primary")

// Leader does what dialects.Keeper promises.
func (k Keeper) Leader(ctx context.Context, election dialects.Rows) (leader dialects.Leader, err error) {
	query, err := leaderSQL(election)
	if err != nil {
		return leader, err
	}
	answer, err := k.readNow(ctx, election.Table, query)
	if err != nil {
		return leader, err
	}
	free, record := false, []string(nil)
	for _, row := range answer[1:] {
		if row == freeMark {
			free = true
		} else {
			record = strings.Fields(row)
		}
	}
	switch {
	case len(record) < 2:
		return leader, fmt.Errorf("%w: the record of election %s is gone", dialects.ErrNoRow, election.Hash)
	case free && record[0] != "0":
		return leader, errReadOnly
	case free, len(record) < 5: // or it is locked, and nobody has led yet
		return leader, dialects.ErrNoLeader
	}
	leader.Term, err = strconv.ParseInt(record[1], 10, 64)
	if err == nil {
		leader.Since, err = time.Parse("2006-01-02 15:04:05.999999", record[2]+" "+record[3])
	}
	if err == nil {
		var identity []byte
		identity, err = hex.DecodeString(record[4])
		leader.Identity = string(identity)
	}
	return leader, err
}
