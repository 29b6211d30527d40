package records

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/claims"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// now is the same in all of a statement: the time at which it began. So it stands in a statement
// behind the one that locks.
const now = "UTC_TIMESTAMP(6)"

// microseconds counts those of a time since the Unix epoch.
func microseconds(time string) string {
	return "TIMESTAMPDIFF(MICROSECOND, '1970-01-01', " + time + ")"
}

// ClaimSQL makes a change, with a token, and then reads the claim in a second statement. Both do so
// where condition holds. Both look at the row itself, whatever snapshot the transaction has. With a
// condition, the values come from a SELECT of one row, for VALUES takes none.
func ClaimSQL(locks string, change dialects.ClaimChange, token, condition string) (write, read string, err error) {
	table, err := sqltext.Beside(locks, locktable.Claims)
	claim := " WHERE claim = " + bytesOf(change.Hash)
	open, shut := "VALUES (", ")"
	if condition != "" {
		claim += " AND " + condition
		open, shut = "SELECT ", " FROM DUAL WHERE "+condition
	}
	by := bytesOf([]byte(change.By))
	held := fmt.Sprintf("%s AND holder = %s AND token = %d AND secret = %d AND until > %s", claim, by, change.Token,
		change.Secret, now)
	end := fmt.Sprintf("%s + INTERVAL %d MICROSECOND", now, change.For.Microseconds())
	switch change.Verb {
	case dialects.KeepClaim:
		if condition == "" { // in a transaction that may be at REPEATABLE READ
			write = fmt.Sprintf("INSERT INTO %s (claim, holder, token, secret, since, until) VALUES (%s, '', 0, 0, "+
				"'1970-01-01', '1970-01-01') ON DUPLICATE KEY UPDATE claim = claim", table, bytesOf(change.Hash))
		}
	case dialects.TakeClaim:
		name := "NULL"
		if change.Name != "" {
			if name, err = sqltext.Literal(dialects.Value{Text: change.Name}); err != nil {
				return "", "", err
			}
		}
		// Assignments are made from left to right, and with SIMULTANEOUS_ASSIGNMENT of MariaDB all
		// at once. The conditions mean the same in both.
		write = fmt.Sprintf("INSERT INTO %s (claim, name, holder, token, since, until, secret) "+
			open+"%s, %s, %s, %s, %s, %s, %d"+shut+" ON DUPLICATE KEY UPDATE "+
			"secret = IF(until > %[6]s, secret, %[8]d), "+
			"token = IF(until > %[6]s, token, %[5]s), since = IF(until > %[6]s, since, %[6]s), "+
			"name = IF(until > %[6]s AND holder <> %[4]s, name, %[3]s), "+
			"holder = IF(until > %[6]s, holder, %[4]s), "+
			"until = IF(until > %[6]s AND holder <> %[4]s, until, %[7]s)",
			table, bytesOf(change.Hash), name, by, token, now, end, change.Secret)
	case dialects.ExtendClaim:
		write = "UPDATE " + table + " SET until = " + end + held
	case dialects.BreakClaim:
		write = "UPDATE " + table + " SET until = " + now + held
	case dialects.ReleaseClaim:
		write = "UPDATE " + table + " SET until = '1970-01-01'" + held
	}
	return write, "SELECT " + claimState + " FROM " + table + claim + " FOR UPDATE", err
}

func bytesOf[T [32]byte | []byte](bytes T) string { return fmt.Sprintf("x'%x'", bytes) }

// claimState is the state of a claim in one column, for claims.States.
var claimState = "CONCAT_WS(' ', HEX(claim), token, secret, " + microseconds("since") + ", " + microseconds("until") +
	", TIMESTAMPDIFF(MICROSECOND, " + now + ", until), HEX(holder), HEX(IFNULL(name, '')))"

// Claims does what dialects.Keeper promises.
func (k Keeper) Claims(ctx context.Context, table string, hashes ...[32]byte) (
	map[[32]byte]dialects.ClaimState, error,
) {
	beside, err := sqltext.Beside(table, locktable.Claims)
	if err != nil {
		return nil, err
	}
	where := "until > " + now + " ORDER BY until LIMIT " + strconv.Itoa(dialects.MostClaims)
	if len(hashes) > 0 {
		listed := make([]string, len(hashes))
		for i, hash := range hashes {
			listed[i] = bytesOf(hash)
		}
		where = "claim IN (" + strings.Join(listed, ", ") + ")"
	}
	lines, err := k.readNow(ctx, table, "(SELECT "+client.ReadsNow+") UNION ALL (SELECT "+claimState+" FROM "+beside+
		" WHERE "+where+")")
	switch {
	case server.Number(err) == server.NoPrivilege:
		return nil, fmt.Errorf("%w: %w", dialects.ErrUnreadable, err)
	case err != nil:
		return nil, err
	}
	return claims.States(lines[1:])
}
