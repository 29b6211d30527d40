package txlockotel_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
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
		err := f.locks.Mutex(f.key).Do(ctx, func(ctx context.Context, _ *sql.Tx) error {
			work(ctx, "work")
			lock := must.Get(f.locks.Mutex(f.key + "nested").Lock(ctx))(t)
			work(lock.Context(), "nested work")
			require.NoError(t, f.locks.Mutex(f.key).TryDo(lock.Context(), func(ctx context.Context, _ *sql.Tx) error {
				work(ctx, "innermost work")
				return nil
			}))
			return lock.Unlock(ctx)
		})
		require.NoError(t, err)
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
