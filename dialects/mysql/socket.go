package mysql

import (
	"net"

	"github.com/go-sql-driver/mysql"
	"github.com/txlock/txlock/dialects/internal/wrapped"
)

// look finds what the session's connection is made of. go-sql-driver/mysql shows to nobody its
// socket, without which only the next heartbeat would notice the loss of a session, and whether it
// takes several statements in one query. The socket is watched, never used, and found below what a
// program has wrapped around the connection. Statements go through the wrapper, which may not pass
// on several of them. With another driver, or a version with other names for the fields, there is
// no socket, and statements travel alone.
func (s *session) look() {
	defer func() {
		if s.socket != nil {
			s.cut = func() { _ = s.socket.Close() }
		}
	}()
	_ = s.conn.Raw(func(pooled any) error {
		if s.owned, _ = pooled.(*ownedConn); s.owned != nil {
			s.socket, s.several = s.owned.socket, true
			return nil
		}
		config := wrapped.Field[*mysql.Config](pooled, "cfg")
		s.socket, s.several = socketOf(wrapped.Innermost(pooled)), config != nil && config.MultiStatements
		return nil
	})
}

func socketOf(conn any) net.Conn {
	if socket := wrapped.Field[net.Conn](conn, "rawConn"); socket != nil { // below TLS; nil without
		return socket
	}
	return wrapped.Field[net.Conn](conn, "netConn")
}
