// Package network tells errors of the way to a server from those that a server sent.
package network

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"net"
)

// Failed tells whether err says that the server was not reached, or that the connection to it
// broke, or that no connection came in time: another attempt may succeed.
func Failed(err error) bool {
	var way net.Error // also context.DeadlineExceeded
	if errors.As(err, &way) {
		return true
	}
	for _, broken := range []error{io.EOF, io.ErrUnexpectedEOF, net.ErrClosed, driver.ErrBadConn, sql.ErrConnDone} {
		if errors.Is(err, broken) {
			return true
		}
	}
	return false
}
