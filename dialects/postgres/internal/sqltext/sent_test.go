package sqltext

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// The library's own texts are qualified, and the caller's are not. No more than some are kept.
func TestSent(t *testing.T) {
	own := Statement{SQL: "select f()", Work: true}
	require.Equal(t, own.SQL, own.Sent())
	for i := range 10_000 {
		savepoint := Silent(fmt.Sprintf("savepoint txlock_%d", i))
		require.Equal(t, savepoint.SQL, savepoint.Sent())
		_, known := sent.Load(savepoint.SQL)
		require.False(t, known)
		of := With(fmt.Sprintf("select f(%d)", i))
		for range 2 {
			require.Equal(t, fmt.Sprintf("select pg_catalog.f(%d)", i), of.Sent())
		}
	}
	texts := 0
	sent.Range(func(any, any) bool { texts++; return true })
	require.LessOrEqual(t, texts, maxSent)
}
