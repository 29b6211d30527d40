//go:build !linux || 386

package peer

import (
	"net"
	"time"
)

// Silence is not known on this system.
func Silence(net.Conn) (silence time.Duration, known bool) { return 0, false }
