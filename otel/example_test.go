package txlockotel_test

import (
	"context"
	"database/sql"
	"log"
	"net/http"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/mysql"
	txlockotel "github.com/txlock/txlock/otel"
)

// Prometheus scrapes the locks of this program on MariaDB. Spans go to the global tracer provider,
// if one is set.
func ExampleNewTracer() {
	ctx := context.Background()
	exporter, err := prometheus.New()
	if err != nil {
		log.Fatal(err)
	}
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(exporter)))
	http.Handle("/metrics", promhttp.Handler())

	driver, err := mysql.Open(ctx, "shop@tcp(db1)/shop")
	if err != nil {
		log.Fatal(err)
	}
	tracer := txlockotel.NewTracer(txlockotel.WithAttributes(semconv.DBSystemNameMariaDB, semconv.ServerAddress("db1")))
	locks := txlock.New(driver, txlock.WithTracer(tracer))
	defer locks.Close()

	err = locks.Mutex("sku:42").Do(ctx, func(ctx context.Context, tx *sql.Tx) error {
		// This is a child of the section's span.
		_, err := tx.ExecContext(ctx, "UPDATE inventory SET stock = stock - 1 WHERE sku = 42")
		return err
	})
	if err != nil {
		log.Fatal(err)
	}
}
