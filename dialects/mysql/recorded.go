package mysql

import (
	"context"
	"fmt"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql/internal/client"
	"github.com/txlock/txlock/dialects/mysql/internal/records"
	"github.com/txlock/txlock/dialects/mysql/internal/sqltext"
)

// Where several statements travel together, the first time of a Once takes the trips of a Do, and
// what was done is found in one. lookUpSQL looks before the lock, and puts what it finds into a
// variable of the session. If that is not NULL, the statements behind it lock and write nothing.
const (
	found    = "txlock_done"
	notFound = "@" + found + " IS NULL"
	wasFound = "@" + found + " IS NOT NULL"            // NOT in front is something else with HIGH_NOT_PRECEDENCE
	granted  = "@" + sqltext.Variable + " IS NOT NULL" // the locking statement has put a value into it
	isFound  = "found"
)

// errFound says that the marker was there before the lock. The transaction is open, and has neither
// locked nor written anything: the caller need not wait for its end.
var errFound = fmt.Errorf("%w: found", dialects.ErrDone)

// lookUpSQL comes in front of the lock. It must not wait for a marker that is being written, so it
// is not a SET, whose queries InnoDB reads in share mode. And what it has read must not be what the
// work reads: a COMMIT behind it ends the snapshot that it has at REPEATABLE READ.
//
// It has the comment of the lock, by which a wait is ended: DDL may hold the table of the markers.
func lookUpSQL(request dialects.Request, comment string) (string, error) {
	done, err := records.DoneSQL(request.Table, *request.Marker)
	return "SELECT " + comment + "NULL, (" + done + ") INTO @" + sqltext.Variable + ", @" + found, err
}

// onceScript puts the statement that locks behind lookUpSQL. Send returns the values of the rows
// that it has locked, or errFound, or ErrDone when the marker came meanwhile.
func onceScript(to client.Link, request dialects.Request, comment, lock string) (
	script []string, send sending, err error,
) {
	look, err := lookUpSQL(request, comment)
	if err != nil {
		return nil, nil, err
	}
	write, read, err := records.MarkSQL(request.Table, *request.Marker, granted)
	answer := "(SELECT '" + isFound + "' FROM DUAL WHERE " + wasFound + ") UNION ALL (" + read + ")"
	send = func(ctx context.Context, script ...string) ([]string, error) {
		answer, err := to.Ask(ctx, script...)
		switch {
		case err != nil || len(answer) == 0: // nothing was locked
			return nil, err
		case answer[0] == isFound:
			return nil, errFound
		}
		return []string{request.Values[0].Text}, records.Marked(answer)
	}
	return []string{look, "COMMIT", client.Save, lock, write, answer}, send, err
}

// drawn is the variable of the session that has the row of counted.
const drawn = "txlock_drawn"

// claimScript puts the change of a claim behind the statement that locks, which puts what it locks
// into variables of the session. What stands behind does nothing unless it did. The first line of
// the answer is the row that is locked, if there is one; the second is the claim.
func claimScript(request dialects.Request, lock string) (script []string, err error) {
	row, token, condition := "'"+request.Values[0].Text+"'", "0", granted
	if request.Fence != "" {
		row = "@" + drawn
		token, condition = drawnSQL(row)
	}
	write, read, err := records.ClaimSQL(request.Table, *request.Claim, token, condition)
	forget := "SET @" + sqltext.Variable + " = NULL, @" + drawn + " = NULL"
	answer := "(SELECT " + row + " FROM DUAL WHERE " + granted + ") UNION ALL (" + read + ")"
	return []string{forget, client.Save, lock, write, answer}, err
}
