package mysql

import (
	"database/sql"
	"net"
	"reflect"
	"unsafe"
)

// socketOf finds the network connection below a connection of go-sql-driver/mysql, which shows it
// to nobody: without it, the loss of a session would be noticed by the next heartbeat only. It is
// watched, never used. Another driver, or a version with other names for the fields, has none.
func socketOf(conn *sql.Conn) (socket net.Conn) {
	_ = conn.Raw(func(pooled any) error {
		if owned, ok := pooled.(*ownedConn); ok {
			pooled = owned.statementConn
		}
		socket = fieldOf(pooled, "rawConn") // below TLS; nil without
		if socket == nil {
			socket = fieldOf(pooled, "netConn")
		}
		return nil
	})
	return socket
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
