//go:build !linux || 386

package peer

import "time"

// Sees tells whether Look notices anything on this system.
const Sees = false

// Watch never calls gone on this system.
func (Conn) Watch(func()) (stop func()) { return func() {} }

// KeepAlive does nothing on this system.
func (Conn) KeepAlive(time.Duration) (restore func()) { return func() {} }

// Unread is always false on this system.
func (Conn) Unread() bool { return false }

// Look sees nothing on this system.
func (Conn) Look() (gone bool, silence time.Duration) { return false, 0 }
