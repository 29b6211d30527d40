package txlockotel_test

import (
	"errors"
	"io"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/must"
	txlockotel "github.com/txlock/txlock/otel"
)

// Prometheus scrapes a program that holds one lock and failed to get another.
func TestPrometheus(t *testing.T) {
	registry := prometheus.NewRegistry()
	reader := must.Get(exporter.New(exporter.WithRegisterer(registry)))(t)
	meters := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	locks := engines[0].locker(txlock.WithTracer(txlockotel.NewTracer(txlockotel.WithMeterProvider(meters))))
	defer locks.Close()
	require.NoError(t, locks.Mutex("secret").Do(background, nothing))
	held := must.Get(locks.Mutex("secret").Lock(background))(t)
	_, err := locks.Mutex("secret").TryLock(background)
	require.ErrorIs(t, err, txlock.ErrNotAcquired)

	server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	defer server.Close()
	response := must.Get(server.Client().Get(server.URL))(t)
	defer response.Body.Close()
	page := must.Get(io.ReadAll(response.Body))(t)
	require.NotContains(t, string(page), "secret")
	parser := expfmt.NewTextParser(model.LegacyValidation) // names without quotes: every Prometheus reads them
	families := must.Get(parser.TextToMetricFamilies(strings.NewReader(string(page))))(t)

	kinds := map[string]dto.MetricType{}
	for name, family := range families {
		if strings.HasPrefix(name, "txlock_") {
			kinds[name] = family.GetType()
		}
	}
	require.Equal(t, map[string]dto.MetricType{
		"txlock_requests_total": dto.MetricType_COUNTER, "txlock_releases_total": dto.MetricType_COUNTER,
		"txlock_wait_duration_seconds": dto.MetricType_HISTOGRAM,
		"txlock_hold_duration_seconds": dto.MetricType_HISTOGRAM,
		"txlock_waiting":               dto.MetricType_GAUGE, "txlock_held": dto.MetricType_GAUGE,
	}, kinds)
	require.Equal(t, map[string]float64{"Do acquired": 1, "Lock acquired": 1, "TryLock missed": 1},
		scraped(families["txlock_requests_total"]))
	require.Equal(t, map[string]float64{"Do released": 1}, scraped(families["txlock_releases_total"]))
	require.Equal(t, map[string]float64{"Do acquired": 1, "Lock acquired": 1, "TryLock missed": 1},
		scraped(families["txlock_wait_duration_seconds"]))
	require.Equal(t, map[string]float64{"Do ": 0, "Lock ": 1}, scraped(families["txlock_held"]))
	require.NoError(t, held.Unlock(background))

	// The rules and the dashboard name these, and what the tests of the command look for.
	for _, file := range []string{"prometheus/txlock.rules.yml", "grafana/txlock.json"} {
		text := must.Get(os.ReadFile("../deploy/" + file))(t)
		for _, metric := range regexp.MustCompile(`txlock_[a-z_]+=?`).FindAllString(string(text), -1) {
			if !strings.HasSuffix(metric, "=") && !regexp.MustCompile("^txlock_(status|doctor)_").MatchString(metric) {
				require.Contains(t, kinds, metric, file)
			}
		}
		require.Contains(t, string(text), `txlock_outcome=`)
	}
	require.Contains(t, string(page), `txlock_outcome="`)
}

// scraped returns the values of a family by call and outcome. A histogram's value is its count.
func scraped(family *dto.MetricFamily) map[string]float64 {
	values := map[string]float64{}
	for _, m := range family.GetMetric() {
		labels := map[string]string{}
		for _, pair := range m.GetLabel() {
			labels[pair.GetName()] = pair.GetValue()
		}
		values[labels["db_operation_name"]+" "+labels["txlock_outcome"]] =
			m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
	}
	return values
}

// Without options, or with nil ones, telemetry goes to the global providers.
func TestGlobalProviders(t *testing.T) {
	f := &fixture{reader: sdkmetric.NewManualReader(), spans: tracetest.NewSpanRecorder()}
	otel.SetMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(f.reader)))
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(f.spans)))
	locks := engines[0].locker(txlock.WithTracer(txlockotel.NewTracer(
		txlockotel.WithMeterProvider(nil), txlockotel.WithTracerProvider(nil))))
	defer locks.Close()
	require.NoError(t, locks.Mutex("global").Do(background, nothing))
	require.Equal(t, map[string]int{"Do released": 1}, f.sums(t, "txlock.releases"))
	require.Equal(t, "Do txlock_slots", f.last(t).Name())
}

// broken is a provider whose meters make no counters.
type broken struct{ noop.MeterProvider }

type brokenMeter struct{ noop.Meter }

var errBroken = errors.New("no counter today")

// Meter returns a meter that makes no counters.
func (broken) Meter(string, ...metric.MeterOption) metric.Meter { return brokenMeter{} }

// Int64Counter fails.
func (brokenMeter) Int64Counter(string, ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	return nil, errBroken
}

// A metric that cannot be created is an error for otel.Handle. No lock fails because of it.
func TestBrokenProvider(t *testing.T) {
	var handled []error
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { handled = append(handled, err) }))
	locks := engines[0].locker(txlock.WithTracer(txlockotel.NewTracer(txlockotel.WithMeterProvider(broken{}))))
	defer locks.Close()
	require.Equal(t, []error{errBroken, errBroken}, handled)
	require.NoError(t, locks.Mutex("broken").Do(background, nothing))
}
