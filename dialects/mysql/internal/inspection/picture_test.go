package inspection

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects"
)

func FuzzRecordValue(f *testing.F) {
	for _, value := range []string{"", "it's", `'\`, `\'`, `\0`, "\\\x00", "a', 'b", "Zoë", "'"} {
		f.Add(value)
	}
	f.Fuzz(func(t *testing.T, value string) {
		require.Equal(t, value, recordValue("'"+asPrinted.Replace(value)+"', 7"))
	})
}

// A statement that was granted may still be shown as running. What a session held before it began
// is older.
func TestHear(t *testing.T) {
	began := time.UnixMilli(1_700_000_000_000)
	for at, grantIsFirst := range map[string]bool{"1700000000.000": true, "1700000007.5": true, "1699999999.9": false} {
		party := dialects.Party{Since: began, For: time.Second}
		hear(&party, "#7 [a]")
		hear(&party, "#7+2 [a]@"+at)
		require.Len(t, party.Shown, 2)
		require.Equal(t, grantIsFirst, party.Shown[0].Granted, at)
		require.Equal(t, !grantIsFirst, party.Shown[1].Granted, at)
	}
}
