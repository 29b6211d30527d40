package client

import (
	"time"

	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// ClientCheck is how long a dead waiter may stay in the queue.
const ClientCheck = 500 * time.Millisecond

// LeaseSQL sets what ends a session whose client is gone, as long as the transaction lasts.
//
// The server ends the session after the lease. Its timer counts idle time; where a client has
// stopped reading a large result, the server's kernel counts. The server looks now and then whether
// a waiter's client is still there: otherwise a dead one would stay in the queue until its turn. It
// starts that timer at the beginning of a statement, so this one must precede the wait.
func LeaseSQL(lease, check string) string {
	return sqltext.Set("idle_in_transaction_session_timeout", lease) + ", " + sqltext.Set("tcp_user_timeout", lease) +
		", " + sqltext.Set("client_connection_check_interval", check)
}

// Leased makes a transaction one that ends with its client, as a lock's does.
func Leased(lease time.Duration) sqltext.Statement {
	return sqltext.With("select "+LeaseSQL("$1", "$2"), sqltext.Milliseconds(lease),
		sqltext.Milliseconds(ClientCheck))
}
