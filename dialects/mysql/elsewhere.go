package mysql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/txlock/txlock/dialects"
)

// A table's name without a database means another table once work has sent USE. And a temporary
// table hides the one whose name it has, from its own session: there everybody would get each lock.
//
// So each statement that locks rows of our own compares the session's database with the one in
// which the table was looked up. For a temporary table there is no such comparison. It is looked
// for when the table is looked up, and on a pool of Open behind work that may have made one.

// errElsewhere says that the name of the lock table means another one on this connection.
var errElsewhere = errors.New("the name of the lock table means another table on this connection")

// databaseID is the session's database, as Request.TableID has it.
const databaseID = "COALESCE(HEX(DATABASE()), '')"

// andHere goes behind the condition of a statement that locks rows of our own. In another database
// than that of the look-up it is an error, of a number that is out of range.
func andHere(request dialects.Request) string {
	if request.TableID == "" {
		return ""
	}
	return " AND POW(10, 999 * (" + databaseID + " <> '" + request.TableID + "'))"
}

// idOf is what a quoted name means in a database. One with a database means the same everywhere.
func idOf(quoted, database string) string {
	if strings.Contains(quoted, "`.`") {
		return ""
	}
	return database
}

// lookUp is what the name of a table means on a connection.
func lookUp(ctx context.Context, conn *sql.Conn, table string) (id string, err error) {
	quoted, err := quoteTable(table)
	if err != nil {
		return "", err
	}
	if err := unhidden(ctx, conn, quoted); err != nil {
		return "", err
	}
	database, err := firstColumn(ctx, conn, "SELECT "+databaseID)
	if err != nil {
		return "", err
	}
	return idOf(quoted, strings.Join(database, "")), nil
}

// unhidden is an error where a temporary table hides the one that is meant.
func unhidden(ctx context.Context, conn *sql.Conn, quoted string) error {
	made, err := grid(ctx, conn, "SHOW CREATE TABLE "+quoted)
	if err == nil && len(made) == 1 && len(made[0]) > 1 && strings.HasPrefix(made[0][1], "CREATE TEMPORARY") {
		return fmt.Errorf("%w: a temporary one of the name %s", errElsewhere, quoted)
	}
	if number(err) != 0 { // the locking statement has the error
		return nil
	}
	return err
}

// explainDatabase says which database the session is in, where andHere has failed.
func explainDatabase(ctx context.Context, q querier, request dialects.Request, failed error) error {
	if number(failed) != outOfRange || request.TableID == "" {
		return failed
	}
	names, err := firstColumn(ctx, q, "SELECT CONCAT(COALESCE(DATABASE(), 'none'), ', and not ', x'"+
		request.TableID+"')")
	if err != nil {
		return errors.Join(failed, err)
	}
	return fmt.Errorf("%w: its database is %s, where %s was looked up: name the table with its database, or leave the "+
		"session in its own", errElsewhere, strings.Join(names, ""), request.Table)
}
