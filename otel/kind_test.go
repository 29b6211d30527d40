package txlockotel_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/txlock/txlock"
	txlockotel "github.com/txlock/txlock/otel"
)

// An exclusive lock has no kind, all others say what they are.
func TestKind(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := txlockotel.NewTracer(txlockotel.WithTracerProvider(
		sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
	for _, call := range []txlock.Call{
		{Name: "Lock"},
		{Name: "Lock", Shared: true},
		{Name: "Do", Column: "semaphore"},
		{Name: "Lead", Column: "election"},
		{Name: "Once.Do"},
		{Name: "Claim.Take"},
		{Name: "Claimed.Do"},
	} {
		tracer.Answered(tracer.Asked(background, call), txlock.ErrNotAcquired)
	}
	var kinds []string
	for _, span := range spans.Ended() {
		kind := ""
		for _, attribute := range span.Attributes() {
			if attribute.Key == "txlock.kind" {
				kind = attribute.Value.AsString()
			}
		}
		kinds = append(kinds, kind)
	}
	require.Equal(t, []string{"", "shared", "semaphore", "election", "once", "claim", "claim"}, kinds)
}
