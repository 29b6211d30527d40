// Package must has the value of a call that a test cannot do without.
package must

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Get is the value of a call: file := must.Get(os.Open(name))(t). An error ends the test.
func Get[V any](value V, err error) func(testing.TB) V {
	return func(t testing.TB) V {
		t.Helper()
		require.NoError(t, err)
		return value
	}
}
