package eventually

import (
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// ended is a test whose end is looked at.
type ended struct {
	testing.TB
	by string
}

func (e *ended) Helper() {}

func (e *ended) Fatalf(format string, args ...any) {
	e.by = fmt.Sprintf(format, args...)
	runtime.Goexit()
}

func TestTrue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, asked := time.Now(), 0
		True(t, "the third time", func() bool { asked++; return asked == 3 })
		require.Equal(t, 10*time.Millisecond, time.Since(begun))
		Every(t, "the fifth time", time.Second, func() bool { asked++; return asked == 5 })
		require.Equal(t, 1010*time.Millisecond, time.Since(begun))
	})
}

func TestNever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		test, passed, done, begun := &ended{TB: t}, false, make(chan struct{}), time.Now()
		go func() {
			defer close(done)
			Every(test, "the kettle boils", time.Second, func() bool { return false })
			passed = true
		}()
		<-done
		require.Equal(t, "not in 1m0s: the kettle boils", test.by)
		require.Equal(t, Patience+time.Second, time.Since(begun))
		require.False(t, passed)
	})
}
