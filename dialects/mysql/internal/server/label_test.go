package server_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/internal/label"
)

// What other statements of txlock say of themselves is no label: who runs one does not wait.
func TestLabelIn(t *testing.T) {
	shown := label.Begin + label.Keys("k")
	require.Equal(t, label.Begin+"[k]", server.LabelIn("SELECT "+server.Comment(shown, "TAG ")+"slot FROM t"))
	require.Equal(t, label.Begin+"[k]", server.LabelIn("SELECT "+server.Comment(shown, "")+"slot FROM t"))
	for _, none := range []string{
		"SELECT " + server.CommentMark + "ping */ 1", "SELECT 1 /* # */",
		"",
	} {
		require.Empty(t, server.LabelIn(none), none)
	}
}
