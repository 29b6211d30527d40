package client

import (
	"context"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// A limit of the pool that is none is an error, before anything is sent.
func TestPoolLimit(t *testing.T) {
	for _, limit := range []string{"", "0", "-1", "many", "1.5"} {
		_, err := Open(context.Background(), "root@tcp(127.0.0.1:1)/?pool_max_conns="+limit)
		require.ErrorContains(t, err, "pool_max_conns="+limit+": must be a number of connections, at least 1")
	}
}

func TestQuotesSafely(t *testing.T) {
	for parameters, safe := range map[string]bool{
		"": true, "?charset=utf8mb4,utf8": true, "?charset=utf8mb4&collation=utf8mb4_bin": true,
		"?charset=gbk": false, "?charset=utf8mb4,sjis&timeout=1s": false, "?collation=big5_chinese_ci": false,
		"?collation=latin1_bin": false,
	} {
		config, err := mysql.ParseDSN("u@tcp(h:1)/d" + parameters)
		require.NoError(t, err)
		require.Equal(t, safe, quotesSafely(config), parameters)
	}
}
