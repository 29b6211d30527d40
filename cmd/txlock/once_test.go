//go:build unix

package main_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestOnce(t *testing.T) { each(t, onces) }

// Without --after the key is marked before the command, which then runs at most once. With it the
// key is marked when the command has succeeded.
func onces(t *testing.T, e *engine) {
	f := installed(t, e)
	failing := []string{"--", "sh", "-c", "echo ran $TXLOCK_KEY; exit 3"}
	passing := []string{"--", "echo", "ran"}
	for _, c := range []struct {
		typed []string
		code  int
		runs  bool
	}{
		{append([]string{"once", "-v", "k"}, failing...), 3, true},
		{append([]string{"once", "-v", "k"}, passing...), 0, false},
		{append([]string{"once", "-v", "--after", "k"}, passing...), 0, false},
		{append([]string{"once", "-v", "--per", "87600h", "k"}, passing...), 0, true},
		{append([]string{"once", "-v", "--per", "87600h", "k"}, passing...), 0, false},
		{append([]string{"once", "-v", "--after", "late"}, failing...), 3, true},
		{append([]string{"once", "-v", "--after", "late"}, passing...), 0, true},
		{append([]string{"once", "-v", "--after", "late"}, passing...), 0, false},
		{append([]string{"once", "-v", "late"}, passing...), 0, false},
		{append([]string{"once", "-v", "--after", "--per", "87600h", "late"}, failing...), 3, true},
		{append([]string{"once", "-v", "--after", "--per", "87600h", "late"}, passing...), 0, true},
		{append([]string{"once", "-v", "--after", "--per", "87600h", "late"}, passing...), 0, false},
	} {
		r := f.run(t, c.typed...)
		require.Equal(t, c.code, r.code, "%q: %s", c.typed, r.stderr)
		if c.runs {
			require.Contains(t, r.stdout, "ran", c.typed)
			require.Empty(t, r.stderr, c.typed)
			continue
		}
		require.Empty(t, r.stdout, c.typed)
		require.Regexp(t, `^txlock: \w+ was done before: \d{4}-\d\d-\d\dT[0-9:]+Z\n$`, r.stderr, c.typed)
	}
	for _, c := range []struct {
		typed  string
		code   int
		stdout string
	}{
		{"once --done k", 0, `^\d{4}-\d\d-\d\dT[0-9:]+Z$`},
		{"once k -- echo ran", 0, "^$"}, // cron mails what is said
		{"once --forget k", 0, "^$"},
		{"once --done k", 3, "^$"},
		{"once --done --per 87600h k", 0, "Z"},
		{"once k -- echo ran", 0, "^ran$"},
		{"sweep --older 1h", 0, "^0 deleted$"},
		{"sweep --older 1us", 0, "^[1-9] deleted$"},
		{"once k -- echo ran", 0, "^ran$"},
	} {
		r := f.run(t, strings.Fields(c.typed)...)
		require.Equal(t, c.code, r.code, "%s: %s", c.typed, r.stderr)
		require.Regexp(t, c.stdout, r.stdout, c.typed)
		require.Empty(t, r.stderr, c.typed)
	}
	// A command that ends in a later window marks none.
	r := f.run(t, "once", "--after", "--per", "1s", "slow", "--", "sleep", "1.1")
	require.Zero(t, r.code)
	require.Equal(t, "txlock: slow is not marked as done: it has ended in a later window than it began in\n", r.stderr)
}

func TestOnceWaits(t *testing.T) { each(t, onceWaits) }

// With --after, others wait while the command runs.
func onceWaits(t *testing.T, e *engine) {
	e.oneAtATime(t)
	f := installed(t, e)
	for _, end := range []string{"5", "0"} {
		first := f.start(t, "once", "--after", "k", "--", "sh", "-c", "echo begun; read end; exit $end")
		require.Equal(t, "begun", first.line(t))
		require.Equal(t, 75, f.run(t, "run", "--try", "k", "--", "true").code)
		require.Equal(t, 75, f.run(t, "once", "--after", "--try", "k", "--", "echo", "never").code)
		second := f.start(t, "once", "-v", "--after", "k", "--", "sh", "-c", "echo second; exit 4")
		f.waiters(t, 1)
		first.send(t, end)
		code := first.wait(t)
		if end == "5" {
			require.Equal(t, 5, code)
			require.Equal(t, "second", second.line(t))
			require.Equal(t, 4, second.wait(t))
			continue
		}
		require.Zero(t, code)
		require.Zero(t, second.wait(t))
		require.Contains(t, second.stderr.String(), "k was done before: ")
	}
}
