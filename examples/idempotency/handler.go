package main

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/txlock/txlock"
)

// answer is what a client gets. It is stored as JSON.
type answer struct {
	Status int
	Body   []byte
}

// work does what a request asks for, in tx, and nothing elsewhere. With an error nothing of it is
// kept, and the client may send the request again.
type work func(ctx context.Context, tx pgx.Tx, body []byte) (answer, error)

// idempotent does the work of a request once for each Idempotency-Key. The answer is stored in the
// transaction of the work. Whoever sends the request again gets that answer. Where clients are not
// one another's friends, the key of the Once has to name the client, too.
func idempotent(locks *txlock.Locker[pgx.Tx], do work) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key := r.Header.Get("Idempotency-Key")
		if key == "" || len(key) > 255 {
			http.Error(w, "give an Idempotency-Key of 1 to 255 bytes", http.StatusBadRequest)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			http.Error(w, "the body cannot be read", http.StatusBadRequest)
			return
		}
		asked := append([]byte(r.Method+" "+r.URL.RequestURI()+"\n"), body...)

		// A client that hangs up must not undo what may be half done: it will ask again.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 30*time.Second)
		defer cancel()
		got, _, err := txlock.TryOnceValue(ctx, locks.Once("request:"+key), asked,
			func(ctx context.Context, tx pgx.Tx) (answer, error) { return do(ctx, tx, body) })
		switch {
		case errors.Is(err, txlock.ErrOtherPayload):
			http.Error(w, "this Idempotency-Key belongs to another request", http.StatusUnprocessableEntity)
		case errors.Is(err, txlock.ErrNotAcquired):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the same request is under way", http.StatusConflict)
		case err != nil: // it may be committed all the same: the client asks again, with the same key
			w.Header().Set("Retry-After", "1")
			http.Error(w, "try again", http.StatusServiceUnavailable)
		default:
			w.WriteHeader(got.Status)
			_, _ = w.Write(got.Body)
		}
	}
}
