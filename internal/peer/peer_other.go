//go:build !linux || 386

package peer

import "time"

// Watch never calls gone on this system.
func (Conn) Watch(func()) (stop func()) { return func() {} }

// KeepAlive does nothing on this system.
func (Conn) KeepAlive(time.Duration) (restore func()) { return func() {} }

// Unread is always false on this system.
func (Conn) Unread() bool { return false }

// Gone is always false on this system.
func (Conn) Gone() bool { return false }

// Silence is not known on this system.
func (Conn) Silence() (silence time.Duration, known bool) { return 0, false }
