package txlockotel_test

import (
	"testing"

	"github.com/stretchr/testify/require"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/txlock/txlock"
	txlockotel "github.com/txlock/txlock/otel"
)

// A shared lock says so, an exclusive one has no kind.
func TestKind(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	tracer := txlockotel.NewTracer(txlockotel.WithTracerProvider(
		sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans))))
	for _, shared := range []bool{false, true} {
		tracer.Answered(tracer.Asked(background, txlock.Call{Name: "Lock", Shared: shared}), txlock.ErrNotAcquired)
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
	require.Equal(t, []string{"", "shared"}, kinds)
}
