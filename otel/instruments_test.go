package txlockotel_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	txlockotel "github.com/txlock/txlock/otel"
)

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
