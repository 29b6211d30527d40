package mysql

import (
	"database/sql"
	"net"
	"reflect"
	"unsafe"
)

// below finds what a pooled connection is made of: the connection of a pool of Open, if it is one,
// and its socket. go-sql-driver/mysql shows the socket to nobody, and without it only the next
// heartbeat would notice the loss of a session. It is watched, never used. It is nil with another
// driver, or a version with other names for the fields.
func below(conn *sql.Conn) (owned *ownedConn, socket net.Conn) {
	_ = conn.Raw(func(pooled any) error {
		if owned, _ = pooled.(*ownedConn); owned != nil {
			pooled = owned.pooledConn
		}
		socket = fieldOf(pooled, "rawConn") // below TLS; nil without
		if socket == nil {
			socket = fieldOf(pooled, "netConn")
		}
		return nil
	})
	return owned, socket
}

// fieldOf reads a field of type net.Conn that is not exported. Name and type are checked, so that
// this is as safe as an exported field.
func fieldOf(pointer any, name string) net.Conn {
	value := reflect.ValueOf(pointer)
	if value.Kind() != reflect.Pointer || value.Elem().Kind() != reflect.Struct {
		return nil
	}
	field := value.Elem().FieldByName(name)
	if !field.IsValid() || field.Type() != reflect.TypeFor[net.Conn]() {
		return nil
	}
	socket, _ := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Interface().(net.Conn)
	return socket
}
