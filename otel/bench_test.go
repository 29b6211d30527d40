package txlockotel_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/txlock/txlock"
	txlockotel "github.com/txlock/txlock/otel"
)

// BenchmarkLock measures what a tracer adds to Lock and Unlock on PostgreSQL.
func BenchmarkLock(b *testing.B) {
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(dropped{}))
	for _, with := range []struct {
		name    string
		options []txlock.Option
	}{
		{"no tracer", nil},
		{"providers that do nothing", []txlock.Option{txlock.WithTracer(txlockotel.NewTracer())}},
		{"metrics", []txlock.Option{txlock.WithTracer(txlockotel.NewTracer(txlockotel.WithMeterProvider(meters)))}},
		{"metrics and spans", []txlock.Option{txlock.WithTracer(
			txlockotel.NewTracer(txlockotel.WithMeterProvider(meters), txlockotel.WithTracerProvider(tracers)))}},
	} {
		b.Run(with.name, func(b *testing.B) {
			m := engines[0].locker(with.options...).Mutex("benchmark")
			b.ReportAllocs()
			for b.Loop() {
				lock, err := m.Lock(background)
				require.NoError(b, err)
				require.NoError(b, lock.Unlock(background))
			}
		})
	}
}

// BenchmarkTracer measures the tracer alone, for one lock.
func BenchmarkTracer(b *testing.B) {
	tracer := txlockotel.NewTracer(
		txlockotel.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))),
		txlockotel.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(dropped{}))))
	b.ReportAllocs()
	for b.Loop() {
		ctx := tracer.Asked(background, txlock.Call{Name: "Lock", System: "postgresql", Table: "txlock_slots"})
		tracer.Answered(ctx, nil)
		tracer.Ended(ctx, nil)
	}
}

// dropped discards all spans.
type dropped struct{}

// OnStart does nothing.
func (dropped) OnStart(context.Context, sdktrace.ReadWriteSpan) {}

// OnEnd does nothing.
func (dropped) OnEnd(sdktrace.ReadOnlySpan) {}

// Shutdown does nothing.
func (dropped) Shutdown(context.Context) error { return nil }

// ForceFlush does nothing.
func (dropped) ForceFlush(context.Context) error { return nil }
