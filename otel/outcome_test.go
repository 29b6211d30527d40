package txlockotel_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/txlock/txlock"
	txlockotel "github.com/txlock/txlock/otel"
)

// A try that misses is no error, whatever its name. An error has the name of its sentinel, however
// it is wrapped. A wait that Within ends is a timeout, even if database/sql noticed first and says
// "context canceled". An exclusive lock has no kind, all others say what they are.
func TestOutcomes(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := txlockotel.NewTracer(txlockotel.WithTracerProvider(
		sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
	missed, ended := txlock.ErrNotAcquired, context.DeadlineExceeded
	for _, c := range []struct {
		call                     txlock.Call
		err                      error
		kind, outcome, errorType string
	}{
		{txlock.Call{Name: "TryLock"}, missed, "", "missed", ""},
		{txlock.Call{Name: "TryLockTx"}, missed, "", "missed", ""},
		{txlock.Call{Name: "Once.TryDo"}, missed, "once", "missed", ""},
		{txlock.Call{Name: "TryOnceValue"}, missed, "once", "missed", ""},
		{txlock.Call{Name: "AnyRows.Do"}, missed, "", "missed", ""},
		{txlock.Call{Name: "LockTx"}, missed, "", "timeout", "txlock.ErrNotAcquired"},
		{
			txlock.Call{Name: "Lock"},
			fmt.Errorf("%w: %w (%w)", missed, context.Canceled, ended),
			"", "timeout", "txlock.ErrNotAcquired",
		},
		{txlock.Call{Name: "Lock", Shared: true}, txlock.ErrUpgrade, "shared", "error", "txlock.ErrUpgrade"},
		{
			txlock.Call{Name: "Do", Column: "semaphore"},
			txlock.ErrInsideLock,
			"semaphore", "error", "txlock.ErrInsideLock",
		},
		{
			txlock.Call{Name: "Lead", Column: "election"},
			txlock.ErrUnsafeEngine,
			"election", "error", "txlock.ErrUnsafeEngine",
		},
		{txlock.Call{Name: "Claim.Take"}, txlock.ErrLost, "claim", "lost", "txlock.ErrLost"},
		{txlock.Call{Name: "Claimed.Do"}, txlock.ErrDeadlock, "claim", "deadlock", "txlock.ErrDeadlock"},
	} {
		tracer.Answered(tracer.Asked(background, c.call), fmt.Errorf("txlock: %s: %w", c.call.Name, c.err))
		told := map[string]string{}
		for _, attribute := range spans.Ended()[len(spans.Ended())-1].Attributes() {
			told[string(attribute.Key)] = attribute.Value.String()
		}
		require.Equal(t, []string{c.kind, c.outcome, c.errorType},
			[]string{told["txlock.kind"], told["txlock.outcome"], told["error.type"]}, c.call.Name)
	}
}
