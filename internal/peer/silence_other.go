//go:build !linux || 386

package peer

import (
	"time"
)

// Silence is not known on this system.
func (Conn) Silence() (silence time.Duration, known bool) { return 0, false }
