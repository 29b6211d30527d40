package txlockotel

import (
	"context"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/txlock/txlock"
)

// scope is the name of this instrumentation.
const scope = "github.com/txlock/txlock/otel"

// The names of attributes and of the event for which the conventions have none.
const (
	outcomeKey    = attribute.Key("txlock.outcome")
	nestedKey     = attribute.Key("txlock.nested")
	kindKey       = attribute.Key("txlock.kind")
	keysKey       = attribute.Key("txlock.keys")
	waitedKey     = attribute.Key("txlock.waited")
	attemptKey    = attribute.Key("txlock.attempt")
	acquiredEvent = "txlock.acquired"
)

// Tracer is a [txlock.QueueTracer], for one Locker or for many.
type Tracer struct {
	instruments
	spans      trace.Tracer
	attributes []attribute.KeyValue
	keys       bool
	labels     sync.Map // *labels by series
}

var _ txlock.QueueTracer = (*Tracer)(nil)

// NewTracer returns a Tracer for the global providers of OpenTelemetry, unless options say
// otherwise. If a metric cannot be created, otel.Handle gets the error, and the others work.
func NewTracer(options ...Option) *Tracer {
	c := newConfig(options)
	return &Tracer{
		instruments: newInstruments(c.meters.Meter(scope, metric.WithSchemaURL(semconv.SchemaURL))),
		spans:       c.tracers.Tracer(scope, trace.WithSchemaURL(semconv.SchemaURL)),
		attributes:  c.attributes,
		keys:        c.keys,
	}
}

// series identifies a series of a metric.
type series struct {
	system, operation, table string
	nested                   bool
	kind                     string  // of the lock; empty: exclusive
	outcome                  outcome // empty while it is not known
	errorType                string  // empty unless the outcome is an error
}

// kindOf is what is asked for. Rows of the caller's by a column named semaphore are taken for one.
func kindOf(call txlock.Call) string {
	switch {
	case call.Shared:
		return "shared"
	case call.Column == "semaphore":
		return "semaphore"
	case call.Name == "Lead":
		return "election"
	case strings.Contains(call.Name, "Once"):
		return "once"
	case strings.HasPrefix(call.Name, "Claim"):
		return "claim"
	}
	return ""
}

// labels are the attributes of a series, in the forms that spans and instruments take.
type labels struct {
	attributes []attribute.KeyValue
	add        []metric.AddOption
	record     []metric.RecordOption
}

// labelled makes the labels of each series only once, because sorting attributes takes longer than
// counting. There is one entry for each series of the metrics.
func (t *Tracer) labelled(s series) *labels {
	if known, ok := t.labels.Load(s); ok {
		return known.(*labels)
	}
	attributes := []attribute.KeyValue{
		semconv.DBSystemNameKey.String(s.system), semconv.DBOperationName(s.operation),
		semconv.DBCollectionName(s.table),
		nestedKey.Bool(s.nested),
	}
	if s.kind != "" {
		attributes = append(attributes, kindKey.String(s.kind))
	}
	if s.outcome != "" {
		attributes = append(attributes, outcomeKey.String(string(s.outcome)))
	}
	if s.errorType != "" {
		attributes = append(attributes, semconv.ErrorTypeKey.String(s.errorType))
	}
	attributes = append(attributes, t.attributes...)
	set := metric.WithAttributeSet(attribute.NewSet(attributes...))
	made, _ := t.labels.LoadOrStore(s, &labels{attributes, []metric.AddOption{set}, []metric.RecordOption{set}})
	return made.(*labels)
}

// section is a call that locks, and its lock. It travels in the context.
type section struct {
	series
	span  trace.Span
	since time.Time // when the lock was asked for, later when it was granted
}

type sectionKey struct{}

// Asked begins the span of a call.
func (t *Tracer) Asked(ctx context.Context, call txlock.Call) context.Context {
	s := &section{
		series: series{system: call.System, operation: call.Name, table: call.Table, nested: call.Nested},
		since:  time.Now(),
	}
	s.kind = kindOf(call)
	known := t.labelled(s.series)
	options := []trace.SpanStartOption{trace.WithTimestamp(s.since), trace.WithAttributes(known.attributes...)}
	if t.keys {
		options = append(options, trace.WithAttributes(keysKey.StringSlice(call.Names)))
	}
	if call.Attempt > 0 {
		options = append(options, trace.WithAttributes(attemptKey.Int(call.Attempt)))
	}
	ctx, s.span = t.spans.Start(ctx, call.Name+" "+call.Table, options...)
	t.waiting.Add(ctx, 1, known.add...)
	return context.WithValue(ctx, sectionKey{}, s)
}

// Queued counts a call that waits in the process.
func (t *Tracer) Queued(ctx context.Context) { t.queue(ctx, 1) }

// Admitted counts it no more.
func (t *Tracer) Admitted(ctx context.Context) { t.queue(ctx, -1) }

func (t *Tracer) queue(ctx context.Context, change int64) {
	s := ctx.Value(sectionKey{}).(*section)
	t.queued.Add(ctx, change, t.labelled(s.series).add...)
}

// Answered counts the call and measures its wait. It ends the span if no Ended will follow.
func (t *Tracer) Answered(ctx context.Context, err error) {
	s := ctx.Value(sectionKey{}).(*section)
	now, waited := s.lap()
	try := strings.Contains(s.operation, "Try") || s.operation == "AnyRows.Do" // also Once.TryDo
	how := s.ended(ofWait(err, try), err)
	known, base := t.labelled(how), t.labelled(s.series)
	t.waiting.Add(ctx, -1, base.add...)
	t.requests.Add(ctx, 1, known.add...)
	t.wait.Record(ctx, waited, known.record...)
	if err == nil {
		s.span.AddEvent(acquiredEvent, trace.WithTimestamp(now), trace.WithAttributes(waitedKey.Float64(waited)))
	}
	if err == nil && !strings.HasSuffix(s.operation, "Tx") {
		t.held.Add(ctx, 1, base.add...)
		return
	}
	t.finish(s.span, how, now, err)
}

// Ended measures how long the lock was held, and ends the span.
func (t *Tracer) Ended(ctx context.Context, err error) {
	s := ctx.Value(sectionKey{}).(*section)
	now, held := s.lap()
	how := s.ended(ofHold(err), err)
	known := t.labelled(how)
	t.held.Add(ctx, -1, t.labelled(s.series).add...)
	t.releases.Add(ctx, 1, known.add...)
	t.hold.Record(ctx, held, known.record...)
	t.finish(s.span, how, now, err)
}

// lap returns the seconds since the last call.
func (s *section) lap() (now time.Time, seconds float64) {
	now = time.Now()
	seconds = now.Sub(s.since).Seconds()
	s.since = now
	return now, seconds
}

// ended returns the series of a call with this end.
func (s *section) ended(o outcome, err error) series {
	how := s.series
	how.outcome = o
	if o.bad() {
		how.errorType, _ = name(err)
	}
	return how
}

func (t *Tracer) finish(span trace.Span, how series, now time.Time, err error) {
	defer span.End(trace.WithTimestamp(now))
	if !span.IsRecording() {
		return
	}
	span.SetAttributes(outcomeKey.String(string(how.outcome)))
	if !how.outcome.bad() {
		return
	}
	_, description := name(err)
	if t.keys {
		description = err.Error()
		span.RecordError(err, trace.WithTimestamp(now))
	}
	span.SetStatus(codes.Error, description)
	span.SetAttributes(semconv.ErrorTypeKey.String(how.errorType))
	if state := sqlState(err); state != "" {
		span.SetAttributes(semconv.DBResponseStatusCode(state))
	}
}
