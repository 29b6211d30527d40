// Package fencing makes fencing tokens.
package fencing

import (
	"fmt"
	"time"
)

// SecondConn bounds the wait for a second connection of the pool, to number the server's run: the
// pool may be waiting for the session that asks.
const SecondConn = time.Second

// Token makes a fencing token of an epoch, the number of a server's run, and of a count in that
// run. Later runs have higher numbers, so tokens increase from one run to the next, wherever the
// counter begins.
func Token(epoch, count uint64) (int64, error) {
	const countBits, epochBits = 40, 23
	if epoch == 0 || epoch >= 1<<epochBits || count == 0 || count >= 1<<countBits {
		return 0, fmt.Errorf("no token: count %d in the server's run %d is outside the range", count, epoch)
	}
	return int64(epoch<<countBits | count), nil
}
