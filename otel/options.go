package txlockotel

import (
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Option changes what NewTracer returns.
type Option interface{ apply(*config) }

type config struct {
	meters     metric.MeterProvider
	tracers    trace.TracerProvider
	attributes []attribute.KeyValue
	keys       bool
}

func newConfig(options []Option) config {
	c := config{meters: otel.GetMeterProvider(), tracers: otel.GetTracerProvider()}
	for _, option := range options {
		option.apply(&c)
	}
	return c
}

type optionFunc func(*config)

func (f optionFunc) apply(c *config) { f(c) }

// WithMeterProvider sends metrics to provider instead of the global one. Nil stands for the global
// one.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return optionFunc(func(c *config) {
		if provider != nil {
			c.meters = provider
		}
	})
}

// WithTracerProvider sends spans to provider instead of the global one. Nil stands for the global
// one.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return optionFunc(func(c *config) {
		if provider != nil {
			c.tracers = provider
		}
	})
}

// WithAttributes adds attributes to every span and every metric. Use it for what the library does
// not know about the server, such as db.namespace and server.address. An attribute replaces the one
// of the same name.
func WithAttributes(attributes ...attribute.KeyValue) Option {
	return optionFunc(func(c *config) { c.attributes = append(c.attributes, attributes...) })
}

// WithKeys adds to spans the attribute txlock.keys, with the keys or the values of Rows, and the
// messages of errors, which name keys. It adds nothing to metrics. Use it if keys are no secret.
func WithKeys() Option { return optionFunc(func(c *config) { c.keys = true }) }
