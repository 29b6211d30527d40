package server_test

import (
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects/mysql/internal/server"
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
