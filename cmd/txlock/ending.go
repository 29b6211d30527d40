package main

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
)

// The exit codes; 64 to 78 are those of sysexits.h, which mail and cron know.
const (
	exitError        = 1
	exitUsage        = 64
	exitUnreachable  = 69
	exitNotAcquired  = 75
	exitLost         = 76
	exitNotPermitted = 77
	exitNotSetUp     = 78
)

// ending is how the command ends when it does not succeed.
type ending struct {
	code int
	text string // if empty, nothing is printed
	own  bool   // the code is a child's, and enough by itself
}

// Error implements error.
func (e *ending) Error() string { return e.text }

func usage(format string, arguments ...any) error {
	return &ending{code: exitUsage, text: fmt.Sprintf(format, arguments...)}
}

// failed makes the error for a failure: what failed, why, and what to do if that is known.
func (o *options) failed(ctx context.Context, doing string, err error) error {
	var end *ending
	if err == nil || errors.As(err, &end) {
		return err
	}
	if _, interrupted := o.signals.code(); interrupted && ctx.Err() != nil {
		return &ending{code: exitError, text: "interrupted: " + doing}
	}
	code, advice := o.classify(err)
	text := doing + ": " + reasonOf(err)
	if advice != "" {
		text += "; " + advice
	}
	return &ending{code: code, text: text}
}

// reasonOf is the text of an error, for people. What it advises programs to do, the command says in
// its own words.
func reasonOf(err error) string {
	text := strings.ReplaceAll(err.Error(), " (run install, or the SQL of schema)", "")
	return strings.TrimPrefix(oneLine(text), "txlock: ")
}

// oneLine joins the lines of joined errors into one.
func oneLine(lines string) string {
	var text strings.Builder
	for line := range strings.Lines(lines) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		switch before := text.String(); {
		case before == "":
		case strings.HasSuffix(before, ":"):
			text.WriteString(" ")
		default:
			text.WriteString("; ")
		}
		text.WriteString(line)
	}
	return text.String()
}

func (o *options) classify(err error) (code int, advice string) {
	switch {
	case homeless(err):
		return exitNotSetUp, "create it, or correct its name"
	case errors.Is(err, txlock.ErrNotInstalled):
		return exitNotSetUp, `run "txlock install" once` + o.tableFlag()
	case errors.Is(err, txlock.ErrUnsafeEngine):
		return exitNotSetUp, `see "txlock doctor"`
	case unprivileged(err):
		return exitNotPermitted, `"txlock doctor" says which grant is missing`
	case refused(err):
		return exitNotPermitted, `check user, password and grants`
	case errors.Is(err, txlock.ErrNotAcquired):
		return exitNotAcquired, ""
	case errors.Is(err, txlock.ErrLost):
		return exitLost, ""
	case unreachable(err):
		return exitUnreachable, "is the server up, and " + o.server.Address + " right?"
	}
	return exitError, ""
}

// tableFlag repeats --table in a proposed command.
func (o *options) tableFlag() string {
	if flag := doctor.TableFlag(o.table); flag != "" {
		return " with" + flag
	}
	return ""
}

// refused reports whether the server rejects this role, or denies it the statement.
func refused(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return slices.Contains([]string{"28000", "28P01", "42501"}, pg.Code)
	}
	var my *mysql.MySQLError
	// Access denied: to a database, to the server, from this host, without a password, and to a
	// locked account, on MySQL and on MariaDB.
	return unprivileged(err) || errors.As(err, &my) && slices.Contains(
		[]uint16{1044, 1045, 1130, 1698, 3118, 4151}, my.Number)
}

// unprivileged reports whether the server has accepted this role, but denies it the statement.
func unprivileged(err error) bool {
	var connect *pgconn.ConnectError
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "42501" && !errors.As(err, &connect)
	}
	var my *mysql.MySQLError // access denied: to another's session, to a table, a column, an administrative call
	return errors.As(err, &my) && slices.Contains([]uint16{1095, 1142, 1143, 1227}, my.Number)
}

// homeless reports whether the database or schema does not exist.
func homeless(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) {
		return pg.Code == "3D000" || pg.Code == "3F000"
	}
	var my *mysql.MySQLError
	return errors.As(err, &my) && my.Number == 1049
}

// unreachable reports whether there is no server, or the connection to it broke.
func unreachable(err error) bool {
	var pg *pgconn.PgError
	if errors.As(err, &pg) { // connection exceptions, too many connections, shutting down or starting up
		return strings.HasPrefix(pg.Code, "08") || strings.HasPrefix(pg.Code, "57P0") || pg.Code == "53300"
	}
	var my *mysql.MySQLError
	if errors.As(err, &my) { // too many connections, shutting down, too many of this user
		return slices.Contains([]uint16{1040, 1053, 1203}, my.Number)
	}
	var connect *pgconn.ConnectError
	var network *net.OpError // not net.Error, which errors of files implement as well
	var name *net.DNSError
	return errors.As(err, &connect) || errors.As(err, &network) || errors.As(err, &name) ||
		errors.Is(err, mysql.ErrInvalidConn) || errors.Is(err, driver.ErrBadConn) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, pgconn.ErrConnClosed)
}
