package testbed

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/eventually"
)

// Logbook is a log that a test reads.
type Logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write adds a line.
func (l *Logbook) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

// Option has a Locker log here, as JSON.
func (l *Logbook) Option() txlock.Option {
	return txlock.WithLogger(slog.New(slog.NewJSONHandler(l, nil)))
}

// All is Option, with what is logged for those who look for a fault.
func (l *Logbook) All() txlock.Option {
	return txlock.WithLogger(slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})))
}

// Records are the lines logged so far.
func (l *Logbook) Records(t *testing.T) (records []map[string]any) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range bytes.Split(bytes.TrimSpace(l.text.Bytes()), []byte("\n")) {
		var record map[string]any
		if len(line) > 0 {
			require.NoError(t, json.Unmarshal(line, &record))
			records = append(records, record)
		}
	}
	return records
}

// One waits for the only line, and checks what it says.
func (l *Logbook) One(t *testing.T, level, message string) (record map[string]any) {
	t.Helper()
	eventually.Every(t, "a line in the log", time.Millisecond, func() bool { return len(l.Records(t)) > 0 })
	records := l.Records(t)
	require.Len(t, records, 1)
	require.Equal(t, level, records[0]["level"])
	require.Contains(t, records[0]["msg"], message)
	return records[0]
}
