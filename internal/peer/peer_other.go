//go:build !linux

package peer

import (
	"net"
	"time"
)

// Watch never calls gone on this system.
func Watch(net.Conn, func()) (stop func()) { return func() {} }

// Probe does nothing on this system.
func Probe(net.Conn, time.Duration) (restore func()) { return func() {} }

// Gone is always false on this system.
func Gone(net.Conn) bool { return false }
