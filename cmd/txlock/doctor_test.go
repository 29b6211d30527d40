package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
)

// The worst finding comes last, and fixes keep their lines.
func TestFindings(t *testing.T) {
	findings := []doctor.Finding{
		{
			Check: "a", Severity: doctor.Failure, Found: "bad", Why: "so",
			Fix: doctor.Fix{Text: "GRANT  x;\nGRANT y;", Kind: doctor.SQL},
		},
		{Check: "b", Severity: doctor.OK, Found: "good"},
		{
			Check: "c", Severity: doctor.Warning, Found: "odd", Why: "so",
			Fix: doctor.Fix{Text: "look", Kind: doctor.Advice},
		},
		{Check: "d", Severity: doctor.Note, Found: "new", Why: "so"},
		{Check: "e", Severity: doctor.OK, Found: "fine"},
	}
	const ill = "warning  c: odd\n         why  so\n         fix  look\nFAILURE  a: bad\n         why  so\n         " +
		"fix  GRANT  x;\n              GRANT y;\n"
	const sum = "2 ok, 1 to note, 1 warning, 1 failure\n"
	var b strings.Builder
	require.NoError(t, writeFindings(&b, findings, false, false))
	require.Equal(t, "ok       b: good\nok       e: fine\nnote     d: new\n         why  so\n"+ill+sum, b.String())
	b.Reset()
	require.NoError(t, writeFindings(&b, findings, true, false))
	require.Equal(t, ill+sum, b.String())
	b.Reset()
	require.NoError(t, writeFindings(&b, findings[1:2], true, false))
	require.Equal(t, "1 ok, 0 to note, 0 warnings, 0 failures\n", b.String())
}
