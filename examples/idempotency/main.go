// Idempotency serves POST /orders, which places an order once for each Idempotency-Key, however
// often a client sends the request:
//
//	go run ./examples/idempotency "postgres://app@localhost/shop"
//	curl -X POST -H "Idempotency-Key: 4711" -d '{"sku": 42}' localhost:8080/orders
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/dialects/postgres"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: idempotency postgres://user@host/database")
	}
	ctx := context.Background()
	shop, err := open(ctx, os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	defer shop.close()
	go func() {
		for range time.Tick(time.Hour) { // each replica may do so
			if err := shop.sweep(ctx); err != nil {
				log.Println(err)
			}
		}
	}()
	mux := http.NewServeMux()
	mux.Handle("POST /orders", idempotent(shop.locks, placeOrder))
	log.Println("listening on localhost:8080")
	log.Fatal(http.ListenAndServe("localhost:8080", mux))
}

// shop is the database of the orders.
type shop struct {
	pool  *pgxpool.Pool
	locks *txlock.Locker[pgx.Tx]
}

func open(ctx context.Context, dsn string) (s shop, err error) {
	if s.pool, err = pgxpool.New(ctx, dsn); err != nil {
		return s, err
	}
	s.locks = txlock.New(postgres.New(s.pool))
	if err = s.locks.Install(ctx); err != nil {
		return s, err
	}
	return s, s.locks.Mutex("create tables").Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "CREATE TABLE IF NOT EXISTS placed_orders "+
			"(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, what text NOT NULL)")
		return err
	})
}

func (s shop) close() {
	_ = s.locks.Close()
	s.pool.Close()
}

// sweep forgets requests that no client sends again, with their answers.
func (s shop) sweep(ctx context.Context) error {
	_, err := s.locks.Sweep(ctx, 30*24*time.Hour)
	return err
}

// placeOrder is the work of a request.
func placeOrder(ctx context.Context, tx pgx.Tx, body []byte) (answer, error) {
	var id int64
	err := tx.QueryRow(ctx, "INSERT INTO placed_orders (what) VALUES ($1) RETURNING id", string(body)).Scan(&id)
	return answer{http.StatusCreated, fmt.Appendf(nil, "{\"order\": %d}\n", id)}, err
}
