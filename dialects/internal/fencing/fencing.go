// Package fencing makes fencing tokens.
package fencing

import (
	"errors"
	"fmt"
	"time"
)

// SecondConn bounds the wait for a second connection of the pool, to number the server's run: the
// pool may be waiting for the session that asks.
const SecondConn = time.Second

// CountBits is how many bits of a token are the count. Those above are the epoch.
const CountBits, epochBits = 40, 23

// Spent is the count from which on a run has none left, at the latest, and is followed by another.
// It leaves room for the further tokens that are drawn with one. All who draw must agree on it:
// otherwise a token of the old run could follow one of the new.
const Spent = 1<<CountBits - 1<<20

// ErrNoRun occurs when the server was started since the last token, has crashed, or has taken over,
// or when the counts of its run are spent.
var ErrNoRun = errors.New("no token: the server was started anew, has taken over, or its counts are spent")

// Token makes a fencing token of an epoch, the number of a server's run, and of a count in that
// run. Later runs have higher numbers, so tokens increase from one run to the next, wherever the
// counter begins.
func Token(epoch, count uint64) (int64, error) {
	switch {
	case epoch == 0 || epoch >= 1<<epochBits || count == 0:
		return 0, fmt.Errorf("no token: count %d in the server's run %d is outside the range", count, epoch)
	case count >= Spent:
		return 0, ErrNoRun
	}
	return int64(epoch<<CountBits | count), nil
}
