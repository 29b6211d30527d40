package client

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// A limit of the pool that is none is an error, before anything is sent.
func TestPoolLimit(t *testing.T) {
	for _, limit := range []string{"", "0", "-1", "many", "1.5"} {
		_, err := Open(context.Background(), "root@tcp(127.0.0.1:1)/?pool_max_conns="+limit)
		require.ErrorContains(t, err, "pool_max_conns="+limit+": must be a number of connections, at least 1")
	}
}
