package txlock_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/eventually"
)

// logbook is a log that a test reads.
type logbook struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logbook) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *logbook) option() txlock.Option {
	return txlock.WithLogger(slog.New(slog.NewJSONHandler(l, nil)))
}

// records are the lines so far.
func (l *logbook) records(t *testing.T) (records []map[string]any) {
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

// one waits for the only line, and checks what it says.
func (l *logbook) one(t *testing.T, level, message string) (record map[string]any) {
	t.Helper()
	eventually.Every(t, "a line in the log", time.Millisecond, func() bool { return len(l.records(t)) > 0 })
	records := l.records(t)
	require.Len(t, records, 1)
	require.Equal(t, level, records[0]["level"])
	require.Contains(t, records[0]["msg"], message)
	return records[0]
}

func logged[Tx any](t *testing.T, e *engine, c client[Tx]) {
	log := &logbook{}
	f := newSizedFixture(t, e, c, poolSize, "", log.option())
	m := f.locks.Mutex(f.key("a"))
	lock, err := m.Lock(background)
	require.NoError(t, err)
	_, err = m.TryLock(background)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)
	ctx, cancel := context.WithCancel(background)
	cancel()
	_, err = m.Lock(ctx)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, lock.Unlock(background))
	require.ErrorIs(t, m.Do(background, func(context.Context, Tx) error { return errWork }), errWork)
	require.NoError(t, f.locks.Check(background))
	require.Empty(t, log.records(t), "silent otherwise")

	lock, err = m.Lock(background)
	require.NoError(t, err)
	f.killSessions(t)
	<-lock.Context().Done()
	require.ErrorIs(t, lock.Unlock(background), txlock.ErrLost)
	record := log.one(t, "WARN", "lost a lock")
	require.Contains(t, record["lock"], f.key("a"))
	require.Contains(t, record["error"], "server closed the connection")
}
