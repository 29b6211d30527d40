package mysql

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/label"
)

// What other statements of txlock say of themselves is no label: who runs one does not wait.
func TestLabelIn(t *testing.T) {
	request := dialects.Request{
		Table: "t", Column: "slot", Values: []dialects.Value{{Text: "1"}}, Slots: 4,
		Keys: []string{"k"},
	}
	require.Equal(t, label.Process+" [k]", labelIn("SELECT "+commentOf(labelOf(request), "TAG ")+"slot FROM t"))
	require.Equal(t, label.Process+" [k]", labelIn("SELECT "+commentOf(labelOf(request), "")+"slot FROM t"))
	for _, none := range []string{
		"SELECT " + pingMark + "1", "SELECT " + awaitMark + "slot FROM t", "SELECT 1 /* # */",
		"",
	} {
		require.Empty(t, labelIn(none), none)
	}
}
