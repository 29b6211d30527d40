package mysql

import (
	"net"
	"reflect"
	"unsafe"

	"github.com/go-sql-driver/mysql"
)

// look finds what the session's connection is made of. go-sql-driver/mysql shows to nobody its
// socket, without which only the next heartbeat would notice the loss of a session, and whether it
// takes several statements in one query. The socket is watched, never used. With another driver, or
// a version with other names for the fields, there is no socket, and statements travel alone.
func (s *session) look() {
	_ = s.conn.Raw(func(pooled any) error {
		if s.owned, _ = pooled.(*ownedConn); s.owned != nil {
			s.socket, s.several = s.owned.socket, true
			return nil
		}
		config := fieldOf[*mysql.Config](pooled, "cfg")
		s.socket, s.several = socketOf(pooled), config != nil && config.MultiStatements
		return nil
	})
}

func socketOf(conn any) net.Conn {
	if socket := fieldOf[net.Conn](conn, "rawConn"); socket != nil { // below TLS; nil without
		return socket
	}
	return fieldOf[net.Conn](conn, "netConn")
}

// fieldOf reads a field that is not exported, or returns the zero value. Name and type are checked,
// so that this is as safe as an exported field.
func fieldOf[T any](pointer any, name string) (field T) {
	value := reflect.ValueOf(pointer)
	if value.Kind() != reflect.Pointer || value.Elem().Kind() != reflect.Struct {
		return field
	}
	found := value.Elem().FieldByName(name)
	if !found.IsValid() || found.Type() != reflect.TypeFor[T]() {
		return field
	}
	return *(*T)(unsafe.Pointer(found.UnsafeAddr()))
}
