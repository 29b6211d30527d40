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

func TestIsPlain(t *testing.T) {
	for _, plain := range []string{
		"SAVEPOINT mine", "ROLLBACK TO SAVEPOINT mine",
		"-- name: Use :exec\nSELECT 1", " (SELECT 1)", "update t set a = 1",
	} {
		require.True(t, isPlain(plain), plain)
	}
	for _, other := range []string{
		"SET autocommit = 1", "USE other", "/*! SET autocommit = 1 */", "SELECT 1; SET autocommit = 1", "CALL f()",
		"SAVEPOINT txlock_1; SET autocommit = 1", "/* SELECT",
		"SELECT GET_LOCK('a', 1)", "ROLLBACK", "HANDLER t OPEN", "-- x\n/*!50000 SET autocommit = 1, */ SELECT 1",
	} {
		require.False(t, isPlain(other), other)
	}
}

// The error of a URL says what a DSN looks like.
func TestURL(t *testing.T) {
	_, err := Open(context.Background(), "mysql://app:secret@db.example/shop")
	require.ErrorContains(t, err, "give user:password@tcp(host:3306)/database")
	require.NotContains(t, err.Error(), "secret")
}
