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

// WithMeterProvider has metrics go to provider instead of the global one. Nil is the global one.
func WithMeterProvider(provider metric.MeterProvider) Option {
	return optionFunc(func(c *config) {
		if provider != nil {
			c.meters = provider
		}
	})
}

// WithTracerProvider has spans go to provider instead of the global one. Nil is the global one.
func WithTracerProvider(provider trace.TracerProvider) Option {
	return optionFunc(func(c *config) {
		if provider != nil {
			c.tracers = provider
		}
	})
}

// WithAttributes adds attributes to every span and every metric: what the library does not know of
// the server (db.namespace, server.address), or knows less exactly, for they replace those of the
// same name.
func WithAttributes(attributes ...attribute.KeyValue) Option {
	return optionFunc(func(c *config) { c.attributes = append(c.attributes, attributes...) })
}

// WithKeys adds to spans, and never to metrics, what was locked, as txlock.keys: the keys, or the
// values of Rows; and the messages of errors, which name them. Ask for it where keys are no secret.
func WithKeys() Option { return optionFunc(func(c *config) { c.keys = true }) }
