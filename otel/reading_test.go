package txlockotel_test

import (
	"context"
	"database/sql"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/txlock/txlock"
	txlockotel "github.com/txlock/txlock/otel"
)

// fixture is a Locker whose telemetry a test reads, and another one on the same server without a
// tracer.
type fixture struct {
	*engine
	locks, other *txlock.Locker[*sql.Tx]
	reader       *metric.ManualReader
	meters       *metric.MeterProvider
	spans        *tracetest.SpanRecorder
	tracer       trace.Tracer // for the program's own spans
	key          string
}

func newFixture(t *testing.T, e *engine, options ...txlockotel.Option) *fixture {
	t.Helper()
	f := &fixture{
		engine: e, reader: metric.NewManualReader(), spans: tracetest.NewSpanRecorder(),
		key: "secret:" + t.Name(),
	}
	f.meters = metric.NewMeterProvider(metric.WithReader(f.reader))
	tracers := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(f.spans))
	f.tracer = tracers.Tracer("program")
	options = append([]txlockotel.Option{
		txlockotel.WithMeterProvider(f.meters),
		txlockotel.WithTracerProvider(tracers),
	}, options...)
	f.locks, f.other = e.locker(txlock.WithTracer(txlockotel.NewTracer(options...))), e.locker()
	t.Cleanup(func() {
		require.NoError(t, f.locks.Close())
		require.NoError(t, f.other.Close())
	})
	return f
}

// read returns the current metrics by name.
func (f *fixture) read(t *testing.T) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, f.reader.Collect(background, &all))
	byName := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			byName[m.Name] = m
		}
	}
	return byName
}

// sums returns the values of a counter by series, without zeros.
func (f *fixture) sums(t *testing.T, name string) map[string]int {
	t.Helper()
	values := map[string]int{}
	data, _ := f.read(t)[name].Data.(metricdata.Sum[int64])
	for _, point := range data.DataPoints {
		if point.Value != 0 {
			values[inWords(point.Attributes)] += int(point.Value)
		}
	}
	return values
}

// times returns, by series, how many times a histogram has measured, and their sum.
func (f *fixture) times(t *testing.T, name string) (counts map[string]int, sums map[string]time.Duration) {
	t.Helper()
	counts, sums = map[string]int{}, map[string]time.Duration{}
	data, _ := f.read(t)[name].Data.(metricdata.Histogram[float64])
	for _, point := range data.DataPoints {
		counts[inWords(point.Attributes)] += int(point.Count)
		sums[inWords(point.Attributes)] += time.Duration(point.Sum * float64(time.Second))
	}
	return counts, sums
}

// inWords joins the call, "nested" if it is, the outcome and the type of the error.
func inWords(set attribute.Set) string {
	text := ""
	for _, key := range []attribute.Key{"db.operation.name", "txlock.nested", "txlock.outcome", "error.type"} {
		value, ok := set.Value(key)
		switch {
		case !ok || value.Type() == attribute.BOOL && !value.AsBool():
			continue
		case value.Type() == attribute.BOOL:
			text += " nested"
		default:
			text += " " + value.AsString()
		}
	}
	return text[1:]
}

// total returns a counter's sum over all series.
func (f *fixture) total(t *testing.T, name string) (n int) {
	t.Helper()
	for _, value := range f.sums(t, name) {
		n += value
	}
	return n
}

// ended returns the ended spans by name. Each name must occur once.
func (f *fixture) ended(t *testing.T) map[string]sdktrace.ReadOnlySpan {
	t.Helper()
	byName := map[string]sdktrace.ReadOnlySpan{}
	for _, span := range f.spans.Ended() {
		require.NotContains(t, byName, span.Name())
		byName[span.Name()] = span
	}
	return byName
}

// last returns the span that ended last.
func (f *fixture) last(t *testing.T) sdktrace.ReadOnlySpan {
	t.Helper()
	ended := f.spans.Ended()
	require.NotEmpty(t, ended)
	return ended[len(ended)-1]
}

// value returns a span's attribute as text, or "" if it has none.
func value(span sdktrace.ReadOnlySpan, key attribute.Key) string {
	for _, a := range span.Attributes() {
		if a.Key == key {
			return a.Value.String()
		}
	}
	return ""
}

// everything returns the text of all metrics and of all spans.
func (f *fixture) everything(t *testing.T) (metrics, spans string) {
	t.Helper()
	for name, m := range f.read(t) {
		metrics += fmt.Sprintf("%s %+v\n", name, m)
	}
	for _, span := range tracetest.SpanStubsFromReadOnlySpans(append(f.spans.Ended(), started(f)...)) {
		spans += fmt.Sprintf("%+v\n", span)
	}
	return metrics, spans
}

func started(f *fixture) []sdktrace.ReadOnlySpan {
	all := make([]sdktrace.ReadOnlySpan, 0)
	for _, span := range f.spans.Started() {
		all = append(all, span)
	}
	return all
}

// Instruments have units, and boundaries from 100 µs to minutes.
func TestInstruments(t *testing.T) {
	f := newFixture(t, engines[0])
	require.NoError(t, f.locks.Mutex(f.key).Do(background, nothing))
	units := map[string]string{}
	for name, m := range f.read(t) {
		units[name] = m.Unit
		require.NotEmpty(t, m.Description)
	}
	require.Equal(t, map[string]string{
		"txlock.requests": "{request}", "txlock.wait.duration": "s", "txlock.releases": "{lock}",
		"txlock.hold.duration": "s", "txlock.waiting": "{request}", "txlock.held": "{lock}",
	}, units)
	for _, name := range []string{"txlock.wait.duration", "txlock.hold.duration"} {
		bounds := f.read(t)[name].Data.(metricdata.Histogram[float64]).DataPoints[0].Bounds
		require.IsIncreasing(t, bounds)
		require.Equal(t, 0.0001, bounds[0])
		require.Equal(t, 300.0, bounds[len(bounds)-1])
	}
}

// noKey fails the test if any telemetry contains a key.
func (f *fixture) noKey(t *testing.T) {
	t.Helper()
	metrics, spans := f.everything(t)
	require.Contains(t, metrics, "txlock_slots")
	require.Contains(t, spans, "txlock_slots")
	require.NotContains(t, metrics, "secret")
	require.NotContains(t, spans, "secret")
}

// WithKeys puts the key into spans, but not into metrics.
func TestWithKeys(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, e *engine) {
		f := newFixture(t, e, txlockotel.WithKeys())
		require.Equal(t, errSoldOut, f.locks.Mutex(f.key, "b").Do(
			background, func(context.Context, *sql.Tx) error { return errSoldOut }))
		span := f.last(t)
		require.Equal(t, `["`+f.key+`","b"]`, value(span, "txlock.keys"))
		require.Equal(t, "sold out", span.Status().Description)
		require.Equal(t, "exception", span.Events()[1].Name)
		metrics, spans := f.everything(t)
		require.NotContains(t, metrics, "secret")
		require.Contains(t, spans, "secret")
	})
}
