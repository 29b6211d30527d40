package engines

import (
	"testing"

	"github.com/txlock/txlock/internal/guarantees"
	"github.com/txlock/txlock/internal/guarantees/testbed"
)

// A pool whose connections take one statement at a time gives names back by a statement of its own.
func TestBesideOneByOne(t *testing.T) {
	eachMySQL(t, func(t *testing.T, e *testbed.Engine) { guarantees.BesideExcludes(t, e, testbed.MySQLSQL[0]) })
}
