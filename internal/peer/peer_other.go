//go:build !linux

package peer

import (
	"net"
	"time"
)

// Watch never calls gone on this system.
func Watch(net.Conn, func()) (stop func()) { return func() {} }

// KeepAlive does nothing on this system.
func KeepAlive(net.Conn, time.Duration) (restore func()) { return func() {} }

// Unread is always false on this system.
func Unread(net.Conn) bool { return false }

// Gone is always false on this system.
func Gone(net.Conn) bool { return false }
