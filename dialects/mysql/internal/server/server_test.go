package server_test

import (
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects/mysql/internal/server"
	"github.com/txlock/txlock/internal/label"
)

// An error without a number of its own ends the transaction in Aurora's words alone.
func TestBrokenInWords(t *testing.T) {
	for text, aborted := range map[string]bool{
		"The last transaction was aborted due to Zero Downtime Restart. Please retry.": true,
		"The last transaction was aborted due to Zero Downtime Patch. Please retry.":   true,
		"Unknown error":                        false,
		"XPATH syntax error: '~the last lock'": false,
	} {
		err := fmt.Errorf("wrapped: %w", &mysql.MySQLError{Number: server.UnknownError, Message: text})
		require.Equal(t, aborted, server.Broken(err), text)
	}
	require.False(t, server.Broken(nil))
}

// What other statements of txlock say of themselves is no label: who runs one does not wait.
func TestLabelIn(t *testing.T) {
	shown := label.Begin + label.Keys("k")
	require.Equal(t, label.Begin+"[k]", server.LabelIn("SELECT "+server.Comment(shown, "TAG ")+"slot FROM t"))
	require.Equal(t, label.Begin+"[k]", server.LabelIn("SELECT "+server.Comment(shown, "")+"slot FROM t"))
	for _, none := range []string{"SELECT " + server.CommentMark + "ping */ 1", "SELECT 1 /* # */", ""} {
		require.Empty(t, server.LabelIn(none), none)
	}
}
