package leaks

import (
	"database/sql"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestFind(t *testing.T) {
	require.NoError(t, Find())

	// One that ends later than goleak would wait.
	ended := make(chan struct{})
	go func() { <-time.After(time.Second); close(ended) }()
	require.NoError(t, Find())
	<-ended

	db, err := sql.Open("pgx", "postgres://nobody@127.0.0.1/nothing")
	require.NoError(t, err)
	require.Error(t, goleak.Find(), "a pool has a goroutine")
	require.NoError(t, FindBesidesPools())
	require.NoError(t, db.Close())
	require.NoError(t, Find())
}
