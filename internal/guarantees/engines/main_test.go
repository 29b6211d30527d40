// Package engines tests what one database has and the others have not.
package engines

import (
	"context"
	"testing"

	"github.com/txlock/txlock/internal/guarantees/testbed"
)

var background = context.Background()

func TestMain(m *testing.M) { testbed.Main(m) }
