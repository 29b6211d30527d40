package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/txlock/txlock"
)

// answersTable keeps the answer to each request, and a hash of what was asked. Delete old rows
// together with Locker.Sweep.
const answersTable = `CREATE TABLE IF NOT EXISTS idempotent_answers (
	key text PRIMARY KEY, asked bytea NOT NULL, status int NOT NULL, body bytea NOT NULL,
	at timestamptz NOT NULL DEFAULT now())`

// answer is what a client gets.
type answer struct {
	status int
	body   []byte
}

// work does what a request asks for, in tx, and nothing elsewhere. With an error nothing of it is
// kept, and the client may send the request again.
type work func(ctx context.Context, tx pgx.Tx, body []byte) (answer, error)

// idempotent does the work of a request once for each Idempotency-Key. The answer is stored in the
// transaction of the work. Whoever sends the request again gets that answer, also when both come at
// the same moment: the second one waits for the first.
func idempotent(locks *txlock.Locker[pgx.Tx], pool *pgxpool.Pool, do work) http.HandlerFunc {
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
		asked := sha256.Sum256(append([]byte(r.Method+" "+r.URL.Path+"\n"), body...))

		// A client that hangs up must not undo what may be half done: it will ask again.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(r.Context()), 30*time.Second)
		defer cancel()
		_, err = locks.Once("request:"+key).Within(10*time.Second).Do(ctx, func(ctx context.Context, tx pgx.Tx) error {
			made, err := do(ctx, tx, body)
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, "INSERT INTO idempotent_answers (key, asked, status, body) VALUES ($1, $2, $3, $4)",
				key, asked[:], made.status, made.body)
			return err
		})
		switch {
		case errors.Is(err, txlock.ErrNotAcquired):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "the same request is under way", http.StatusConflict)
			return
		case err != nil: // it may be committed all the same: the client asks again, with the same key
			http.Error(w, "try again", http.StatusServiceUnavailable)
			return
		}
		// Whoever did the work, what is stored counts.
		var made answer
		var stored []byte
		err = pool.QueryRow(ctx, "SELECT asked, status, body FROM idempotent_answers WHERE key = $1", key).
			Scan(&stored, &made.status, &made.body)
		switch {
		case err != nil:
			http.Error(w, "try again", http.StatusServiceUnavailable)
		case !bytes.Equal(stored, asked[:]):
			http.Error(w, "this Idempotency-Key belongs to another request", http.StatusUnprocessableEntity)
		default:
			w.WriteHeader(made.status)
			_, _ = w.Write(made.body)
		}
	}
}
