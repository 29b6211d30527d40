// Checkout sells seats: a cart that has chosen a seat has it for ten minutes, without a connection,
// and pays meanwhile.
//
//	go run ./examples/checkout "postgres://app@localhost/theatre"
//	curl -X POST "localhost:8080/choose?seat=12A&cart=77"      # prints the claim
//	curl -X POST --data "$claim" "localhost:8080/pay?cart=77"  # elsewhere by a cookie
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/txlock/txlock"
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: checkout postgres://user@host/database")
	}
	c, err := open(context.Background(), os.Args[1], console{}, 10*time.Minute)
	if err != nil {
		log.Fatal(err)
	}
	defer c.close()
	log.Println("listening on localhost:8080")
	log.Fatal(http.ListenAndServe("localhost:8080", c.handler()))
}

func (c checkout) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /choose", func(w http.ResponseWriter, r *http.Request) {
		text, err := c.choose(r.Context(), r.FormValue("seat"), r.FormValue("cart"))
		answer(w, text, err)
	})
	mux.HandleFunc("POST /pay", func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4<<10))
		if err == nil {
			err = c.pay(r.Context(), strings.TrimSpace(string(text)), r.URL.Query().Get("cart"))
		}
		answer(w, "sold", err)
	})
	return mux
}

func answer(w http.ResponseWriter, text string, err error) {
	switch {
	case errors.Is(err, errTaken), errors.Is(err, txlock.ErrLost):
		http.Error(w, err.Error(), http.StatusConflict)
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	default:
		fmt.Fprintln(w, text)
	}
}

// console is a bank that only says what it does.
type console struct{}

func (console) Charge(_ context.Context, reference, cart string) error {
	log.Println("charge", cart, "for", reference)
	return nil
}

func (console) Refund(_ context.Context, reference string) error {
	log.Println("refund", reference)
	return nil
}
