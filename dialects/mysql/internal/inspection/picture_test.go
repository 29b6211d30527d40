package inspection

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzRecordValue(f *testing.F) {
	for _, value := range []string{"", "it's", `'\`, `\'`, `\0`, "\\\x00", "a', 'b", "Zoë", "'"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		require.Equal(t, value, recordValue("'"+asPrinted.Replace(value)+"', 7"))
	})
}
