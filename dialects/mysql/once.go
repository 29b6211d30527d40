package mysql

import (
	"context"
	"fmt"

	"github.com/txlock/txlock/dialects"
)

// Where several statements travel together, the first time of a Once takes the trips of a Do, and
// what was done is found in one. lookUpSQL looks before the lock, and puts what it finds into a
// variable of the session. If that is not NULL, the statements behind it lock and write nothing,
// and the last one ends the transaction.
const (
	found    = "txlock_done"
	notFound = "@" + found + " IS NULL"
	wasFound = "@" + found + " IS NOT NULL"    // sql_mode HIGH_NOT_PRECEDENCE reads NOT in front otherwise
	granted  = "@" + variable + " IS NOT NULL" // the locking statement has put a value into it
	isFound  = "found"
)

// errFound says that the marker was there before the lock. The transaction has ended, and the
// session has its settings back.
var errFound = fmt.Errorf("%w: found", dialects.ErrDone)

// lookUpSQL comes in front of the lock. It must not wait for a marker that is being written, so it
// is not a SET, whose queries InnoDB reads in share mode. And what it has read must not be what the
// work reads: COMMIT ends the snapshot that it has at REPEATABLE READ.
//
// It has the comment of the lock, by which a wait is ended: DDL may hold the table of the markers.
func lookUpSQL(marker dialects.Marker, comment string) (string, error) {
	done, err := doneSQL(marker)
	return "SELECT " + comment + "NULL, (" + done + ") INTO @" + variable + ", @" + found + "; COMMIT", err
}

// onceScript puts the statement that locks behind lookUpSQL. Send returns the values of the rows
// that it has locked, or errFound, or ErrDone when the marker came meanwhile.
func (d *Driver) onceScript(request dialects.Request, comment, lock string) (query string,
	send func(context.Context, querier, string) ([]string, error), err error,
) {
	look, err := lookUpSQL(*request.Marker, comment)
	if err != nil {
		return "", nil, err
	}
	write, read, err := markSQL(*request.Marker, granted)
	answer := "(SELECT '" + isFound + "' FROM DUAL WHERE " + wasFound + ") UNION ALL (" + read + ")"
	send = func(ctx context.Context, q querier, query string) ([]string, error) {
		answer, err := firstColumn(ctx, q, query)
		switch {
		case err != nil || len(answer) == 0: // nothing was locked
			return nil, err
		case answer[0] == isFound:
			return nil, errFound
		}
		return []string{request.Values[0].Text}, marked(answer)
	}
	return joined(look, save, lock, write, answer, leaveFound(d.owned)), send, err
}

// leaveFound ends the transaction where the work was done, and gives a session of the caller's its
// settings back. Else it changes nothing. The server commits when it is told to switch autocommit
// on: see commits.
func leaveFound(owned bool) string {
	leave := "SET autocommit = " + wasFound + "; SET "
	if owned {
		return leave + "autocommit = 0"
	}
	for _, of := range []struct{ setting, name string }{
		{"@@autocommit", "autocommit"}, {"@@session.wait_timeout", "wait_timeout"}, {isolation, "isolation"},
	} {
		leave += fmt.Sprintf("%[1]s = IF(%[2]s, %[1]s, @txlock_%[3]s), ", of.setting, notFound, of.name)
	}
	for _, name := range []string{"", "_autocommit", "_wait_timeout", "_isolation"} {
		leave += fmt.Sprintf("@txlock%[1]s = IF(%[2]s, @txlock%[1]s, NULL), ", name, notFound)
	}
	return leave + "@" + found + " = NULL"
}
