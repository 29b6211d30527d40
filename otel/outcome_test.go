package txlockotel_test

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/txlock/txlock"
	txlockotel "github.com/txlock/txlock/otel"
)

// A try that misses is no error, whatever its name. An error has the name of its sentinel, however
// it is wrapped.
func TestOutcomes(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := txlockotel.NewTracer(txlockotel.WithTracerProvider(
		sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
	cases := []struct {
		call               string
		err                error
		outcome, errorType string
	}{
		{"TryLock", txlock.ErrNotAcquired, "missed", ""},
		{"TryLockTx", txlock.ErrNotAcquired, "missed", ""},
		{"Once.TryDo", txlock.ErrNotAcquired, "missed", ""},
		{"LockTx", txlock.ErrNotAcquired, "timeout", "txlock.ErrNotAcquired"},
		{"Lock", txlock.ErrUpgrade, "error", "txlock.ErrUpgrade"},
		{"Do", txlock.ErrInsideLock, "error", "txlock.ErrInsideLock"},
		{"Lock", txlock.ErrUnsafeEngine, "error", "txlock.ErrUnsafeEngine"},
	}
	for _, c := range cases {
		asked := tracer.Asked(background, txlock.Call{Name: c.call})
		tracer.Answered(asked, fmt.Errorf("txlock: %s: %w", c.call, c.err))
	}
	require.Len(t, spans.Ended(), len(cases))
	for i, span := range spans.Ended() {
		told := map[string]string{}
		for _, attribute := range span.Attributes() {
			told[string(attribute.Key)] = attribute.Value.String()
		}
		require.Equal(t, cases[i].outcome, told["txlock.outcome"], cases[i].call)
		require.Equal(t, cases[i].errorType, told["error.type"], cases[i].call)
	}
}
