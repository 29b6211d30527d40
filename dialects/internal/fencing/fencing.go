// Package fencing says what all fencing tokens have in common. A token is an epoch, the number of a
// server's run, and a count in that run. Later runs have higher numbers, so tokens increase from
// one run to the next, wherever the counter begins.
package fencing

import (
	"errors"
	"fmt"
	"time"
)

const (
	// CountBits is how many bits of a token are the count. Those above are the epoch.
	CountBits, epochBits = 40, 23
	// Spent is the count from which on a run has none left, at the latest.
	Spent = 1<<CountBits - 1<<20
	// Tries is how often a lock has the run numbered: it may be spent in the next wait.
	Tries = 3
	// SecondConn bounds the wait for a second connection of the pool, to number the server's run:
	// the pool may be waiting for the session that asks.
	SecondConn = time.Second
)

// ErrNoRun occurs when the server was started since the last token, has crashed, or has taken over,
// or when the counts of its run are spent.
var ErrNoRun = errors.New("no token: the server was started anew, has taken over, or its counts are spent")

// Token makes a fencing token.
func Token(epoch, count uint64) (int64, error) {
	if epoch >= 1<<epochBits || count >= Spent {
		return 0, fmt.Errorf("no token: count %d in the server's run %d is outside the range", count, epoch)
	}
	return int64(epoch<<CountBits | count), nil
}
