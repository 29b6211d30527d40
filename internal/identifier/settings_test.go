package identifier_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/internal/identifier"
)

// Every spelling of a value that serves does.
func TestNeeded(t *testing.T) {
	for setting, values := range map[string][]string{
		"client_encoding":             {"UTF8", "utf8", "utf-8", "Utf_8", "UNICODE", ""},
		"standard_conforming_strings": {"on", "ON", "true", "1", "yes"},
		"search_path":                 {"pg_catalog", "pg_catalog,public", "pg_temp_3,pg_catalog,of locks"},
	} {
		for _, value := range values {
			require.Empty(t, identifier.Needed(setting, value), value)
		}
	}
	for setting, values := range map[string][]string{
		"client_encoding":             {"LATIN1", "SQL_ASCII", "UTF16", "MULE_INTERNAL"},
		"standard_conforming_strings": {"off", "false", "0", "no"},
		"search_path":                 {"public,pg_catalog", "pg_catalogue", "pg_temp_3", "of pg_catalog"},
	} {
		for _, value := range values {
			require.NotEmpty(t, identifier.Needed(setting, value), value)
		}
	}
}
