// Package inspection tests what Inspect shows on each database, and what it must not show.
package inspection

import (
	"context"
	"errors"
	"testing"

	"github.com/txlock/txlock/internal/guarantees/testbed"
)

var background = context.Background()

var errWork = errors.New("the work failed")

func TestMain(m *testing.M) { testbed.Main(m) }
