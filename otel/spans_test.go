package txlockotel_test

import (
	"context"
	"database/sql"
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
	"go.opentelemetry.io/otel/attribute"
	exporter "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/internal/test/database"
	"github.com/txlock/txlock/internal/test/must"
	txlockotel "github.com/txlock/txlock/otel"
)

// childOf requires that one span is the child of another.
func childOf(t *testing.T, child, parent sdktrace.ReadOnlySpan) {
	t.Helper()
	require.Equal(t, parent.SpanContext().SpanID(), child.Parent().SpanID(), "%s in %s", child.Name(), parent.Name())
	require.Equal(t, parent.SpanContext().TraceID(), child.SpanContext().TraceID())
}

// The section's span is a child of the caller's. The spans of the work and of nested locks are
// children of the section's.
func TestSpansNest(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, e *engine) {
		f := newFixture(t, e)
		work := func(ctx context.Context, name string) {
			_, span := f.tracer.Start(ctx, name)
			span.End()
		}
		ctx, caller := f.tracer.Start(background, "caller")
		require.NoError(t, f.locks.Mutex(f.key).Do(ctx, func(ctx context.Context, _ *sql.Tx) error {
			work(ctx, "work")
			lock := must.Get(f.locks.Mutex(f.key + "nested").Lock(ctx))(t)
			work(lock.Context(), "nested work")
			require.NoError(t, f.locks.Mutex(f.key).TryDo(lock.Context(), func(ctx context.Context, _ *sql.Tx) error {
				work(ctx, "innermost work")
				return nil
			}))
			return lock.Unlock(ctx)
		}))
		caller.End()

		spans := f.ended(t)
		require.Len(t, spans, 7)
		childOf(t, spans["Do txlock_slots"], spans["caller"])
		childOf(t, spans["work"], spans["Do txlock_slots"])
		childOf(t, spans["Lock txlock_slots"], spans["Do txlock_slots"])
		childOf(t, spans["nested work"], spans["Lock txlock_slots"])
		childOf(t, spans["TryDo txlock_slots"], spans["Lock txlock_slots"])
		childOf(t, spans["innermost work"], spans["TryDo txlock_slots"])
		require.Equal(t, map[string]int{"Do released": 1, "Lock nested released": 1, "TryDo nested released": 1},
			f.sums(t, "txlock.releases"))
	})
}

// A span has the attributes of the conventions. The grant is an event.
func TestSpanOfASection(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, e *engine) {
		f := newFixture(t, e)
		require.NoError(t, f.locks.Mutex(f.key).Do(background, nothing))
		span := f.last(t)
		system := map[bool]string{true: "postgresql", false: "mysql"}[e.postgres]
		require.Equal(t, "Do txlock_slots", span.Name())
		require.Equal(t, trace.SpanKindInternal, span.SpanKind())
		require.ElementsMatch(t, []attribute.KeyValue{
			attribute.String("db.system.name", system), attribute.String("db.operation.name", "Do"),
			attribute.String("db.collection.name", "txlock_slots"), attribute.Bool("txlock.nested", false),
			attribute.String("txlock.outcome", "released"),
		}, span.Attributes())
		require.Len(t, span.Events(), 1)
		granted := span.Events()[0]
		require.Equal(t, "txlock.acquired", granted.Name)
		require.Equal(t, attribute.Key("txlock.waited"), granted.Attributes[0].Key)
		_, waits := f.times(t, "txlock.wait.duration")
		require.InDelta(t, waits["Do acquired"].Seconds(), granted.Attributes[0].Value.AsFloat64(), 1e-6)
		require.Equal(t, "github.com/txlock/txlock/otel", span.InstrumentationScope().Name)
		require.Equal(t, semconv.SchemaURL, span.InstrumentationScope().SchemaURL)
	})
}

// Each attempt of a Retry has a span, and says how many were before.
func TestSpansOfAttempts(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, e *engine) {
		f := newFixture(t, e)
		runs := 0
		require.NoError(t, f.locks.Mutex(f.key).Retry(3).Do(background, func(ctx context.Context, tx *sql.Tx) error {
			if runs++; runs == 1 {
				f.killSessions(t)
			}
			_, err := tx.ExecContext(ctx, "SELECT 1") // on mysql.New nothing else notices the loss
			return err
		}))
		spans := f.spans.Ended()
		require.Len(t, spans, 2)
		require.Empty(t, value(spans[0], "txlock.attempt"))
		require.Equal(t, "1", value(spans[1], "txlock.attempt"))
	})
}

// The span of a LockTx is its wait: it ends while the transaction goes on.
func TestSpanOfLockTx(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, e *engine) {
		f := newFixture(t, e)
		tx := must.Get(f.db.Begin())(t)
		defer func() { require.NoError(t, tx.Rollback()) }()
		require.NoError(t, f.locks.Mutex(f.key).LockTx(background, tx))
		require.Equal(t, "acquired", value(f.last(t), "txlock.outcome"))
		require.Equal(t, "txlock.acquired", f.last(t).Events()[0].Name)
		require.NoError(t, f.locks.Mutex(f.key).TryLockTx(background, tx))
		require.Equal(t, map[string]int{"LockTx acquired": 1, "TryLockTx acquired": 1}, f.sums(t, "txlock.requests"))
		require.Empty(t, f.sums(t, "txlock.held"), "nobody would tell when it ends")
		require.Empty(t, f.sums(t, "txlock.waiting"))
	})
}

// A lock of rows names their table.
func TestSpanOfRows(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, e *engine) {
		f := newFixture(t, e)
		database.Exec(t, f.db, "CREATE TABLE things (id INT PRIMARY KEY)")
		defer func() { database.Exec(t, f.db, "DROP TABLE things") }()
		require.ErrorIs(t, f.locks.Rows("things", "id", 43).Do(background, nothing), txlock.ErrNoRow)
		require.Equal(t, "Do things", f.last(t).Name())
		require.Equal(t, "txlock.ErrNoRow", value(f.last(t), "error.type"))
	})
}

// The program's own attributes are on spans and metrics. They replace the library's.
func TestWithAttributes(t *testing.T) {
	f := newFixture(t, engines[0], txlockotel.WithAttributes(semconv.DBSystemNameMariaDB, semconv.ServerAddress("db1")))
	require.NoError(t, f.locks.Mutex(f.key).Do(background, nothing))
	require.Equal(t, "mariadb", value(f.last(t), "db.system.name"))
	require.Equal(t, "db1", value(f.last(t), "server.address"))
	metrics, _ := f.everything(t)
	require.Contains(t, metrics, "mariadb")
	require.Contains(t, metrics, "db1")
	require.NotContains(t, metrics, "postgresql")
}

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
