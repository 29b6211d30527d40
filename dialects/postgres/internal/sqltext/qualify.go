package sqltext

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/txlock/txlock/internal/identifier"
)

// Sent is the text of a statement as the server gets it: see [identifier.Qualified]. The caller's
// own is as it is. So is one that names nothing of the server's: a savepoint, of which there is
// one for each number.
func (s Statement) Sent() string {
	if s.Work || !strings.ContainsAny(s.SQL, "(:") && !strings.Contains(s.SQL, "pg_") {
		return s.SQL
	}
	if text, known := sent.Load(s.SQL); known {
		return text.(string)
	}
	if kept.Add(1) > maxSent {
		kept.Store(0)
		sent.Clear()
	}
	text := identifier.Qualified(s.SQL)
	sent.Store(s.SQL, text)
	return text
}

// maxSent bounds the texts that are kept. A program has some for each of its tables, and for each
// number of values.
const maxSent = 1000

var (
	sent sync.Map     // what Sent returns
	kept atomic.Int32 // how many of them there are, or a few more
)
