package txlockotel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
)

// boundaries are in seconds: from a free lock on a server nearby to a wait that deserves an alarm.
var boundaries = []float64{
	0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300,
}

type instruments struct {
	requests, releases metric.Int64Counter
	wait, hold         metric.Float64Histogram
	waiting, queued    metric.Int64UpDownCounter
	held               metric.Int64UpDownCounter
}

func newInstruments(meter metric.Meter) instruments {
	nowhere := noop.Meter{}
	counter := func(name, unit, says string) metric.Int64Counter {
		made, err := meter.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(says))
		none, _ := nowhere.Int64Counter(name)
		return usable(made, err, none)
	}
	histogram := func(name, says string) metric.Float64Histogram {
		made, err := meter.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(says),
			metric.WithExplicitBucketBoundaries(boundaries...))
		none, _ := nowhere.Float64Histogram(name)
		return usable(made, err, none)
	}
	gauge := func(name, unit, says string) metric.Int64UpDownCounter {
		made, err := meter.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(says))
		none, _ := nowhere.Int64UpDownCounter(name)
		return usable(made, err, none)
	}
	return instruments{
		requests: counter("txlock.requests", "{request}", "Calls whose wait for a lock is over."),
		releases: counter("txlock.releases", "{lock}", "Locks that are not held any more."),
		wait: histogram("txlock.wait.duration", "Time from a call until its lock was granted, or its wait ended "+
			"otherwise."),
		hold:    histogram("txlock.hold.duration", "Time for which a lock was held."),
		waiting: gauge("txlock.waiting", "{request}", "Calls that wait for a lock now."),
		queued: gauge("txlock.queued", "{request}", "Calls that wait for a lock now in this process, without a "+
			"connection."),
		held: gauge("txlock.held", "{lock}", "Locks that are held now."),
	}
}

// usable reports an error to otel.Handle, and always returns an instrument that can be called:
// without a metric, locks still work.
func usable[T any](made T, err error, none T) T {
	if err != nil {
		otel.Handle(err)
	}
	if any(made) == nil {
		return none
	}
	return made
}
