// Package wrapped looks below what programs wrap around the connections of a driver of
// database/sql, for traces, say.
package wrapped

import (
	"database/sql/driver"
	"iter"
	"net"
	"reflect"
	"unsafe"
)

// deepest bounds how many wrappers are looked through: one might wrap itself.
const deepest = 16

// All yields conn, the connection that conn wraps, the one which that wraps, and so on.
func All(conn any) iter.Seq[any] {
	return func(yield func(any) bool) {
		for range deepest {
			if conn == nil || !yield(conn) {
				return
			}
			conn = below(conn)
		}
	}
}

// Innermost is the last of All.
func Innermost(conn any) (innermost any) {
	for innermost = range All(conn) {
	}
	return innermost
}

// below is what conn wraps; nil: nothing that can be seen.
func below(conn any) any {
	switch c := conn.(type) {
	case interface{ Raw() driver.Conn }: // XSAM/otelsql
		return orNil(c.Raw())
	case interface{ Unwrap() driver.Conn }:
		return orNil(c.Unwrap())
	case interface{ WrappedConn() driver.Conn }: // dd-trace-go, version 2
		return orNil(c.WrappedConn())
	}
	// Others keep it in a field, embedded or not: ngrok/sqlmw, dd-trace-go before. Of two such
	// fields nobody knows which one is meant.
	if inner := fieldsOf[driver.Conn](conn); len(inner) == 1 {
		return orNil(inner[0])
	}
	return nil
}

func orNil(conn driver.Conn) any {
	if conn == nil {
		return nil
	}
	return conn
}

// Socket is the connection to the server that a driver keeps in a field of its own, to be watched
// and closed, and not used. It is nil when there is none, or more than one.
func Socket(conn any) net.Conn {
	if sockets := fieldsOf[net.Conn](conn); len(sockets) == 1 {
		return sockets[0]
	}
	return nil
}

// Letter reads a field of one byte, whatever its type is called, or returns 0.
func Letter(conn any, name string) byte {
	value := reflect.ValueOf(conn)
	if value.Kind() != reflect.Pointer || value.Elem().Kind() != reflect.Struct {
		return 0
	}
	if found := value.Elem().FieldByName(name); found.IsValid() && found.Kind() == reflect.Uint8 {
		return byte(found.Uint())
	}
	return 0
}

// Field reads a field that may not be exported, of the struct that conn points to, or returns the
// zero value. Name and type are checked, so that this is as safe as an exported field.
func Field[T any](conn any, name string) (field T) {
	value := reflect.ValueOf(conn)
	if value.Kind() != reflect.Pointer || value.Elem().Kind() != reflect.Struct {
		return field
	}
	if found := value.Elem().FieldByName(name); found.IsValid() && found.Type() == reflect.TypeFor[T]() {
		return read[T](found)
	}
	return field
}

// fieldsOf reads the fields of exactly this type, of a struct or of the one that conn points to.
func fieldsOf[T any](conn any) (fields []T) {
	value := reflect.ValueOf(conn)
	switch {
	case value.Kind() == reflect.Pointer && !value.IsNil() && value.Elem().Kind() == reflect.Struct:
		value = value.Elem()
	case value.Kind() == reflect.Struct: // of a copy fields have addresses
		held := reflect.New(value.Type()).Elem()
		held.Set(value)
		value = held
	default:
		return nil
	}
	for i := range value.NumField() {
		if field := value.Field(i); field.Type() == reflect.TypeFor[T]() {
			fields = append(fields, read[T](field))
		}
	}
	return fields
}

func read[T any](field reflect.Value) T { return *(*T)(unsafe.Pointer(field.UnsafeAddr())) }
