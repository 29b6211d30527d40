//go:build unix

package main_test

import (
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// A mistyped command gets one line that says what to do, before any server is asked.
func TestUsage(t *testing.T) {
	t.Parallel()
	unreachable := []string{"TXLOCK_DSN=postgres://127.0.0.1:1/nowhere"}
	for _, c := range []struct {
		typed, told string
	}{
		{"frobnicate", `unknown command "frobnicate"`},
		{"statsu", `unknown command "statsu"`},
		{"--frobnicate", "unknown flag: --frobnicate"},
		{"run", "a key or the command is missing"},
		{"run k", "a key or the command is missing"},
		{"run -- true", "a key or the command is missing"},
		{"run k --", "a key or the command is missing"},
		{"run k true", "put -- between the keys and the command: txlock run k -- true"},
		{"once k", "txlock once KEY -- COMMAND"},
		{"once k true", "put -- between the keys and the command: txlock once k -- true"},
		{"once a b -- true", "once takes one KEY"},
		{"once --done k -- true", "--done or --forget no COMMAND"},
		{"sweep", "--older 720h"},
		{"once --per 999ms k -- true", "--per 999ms: it must be at least 1s"},
		{"once --per -24h k -- true", "it must be at least 1s"},
		{"once --per 1000000001ns k -- true", "whole microseconds"},
		{"run --wiat 3s k -- true", "unknown flag: --wiat"},
		{"run --wait soon k -- true", `invalid argument "soon"`},
		{"run --wait 0s k -- true", "--wait 0s: it must be positive; use --try"},
		{"run --wait -1s k -- true", "it must be positive"},
		{"run --wait 1s --try k -- true", "--wait and --try exclude each other"},
		{"run --lease 0s k -- true", "--lease 0s: it must be positive"},
		{"run --grace -1s k -- true", "--grace -1s: it must not be negative"},
		{"run -E 256 k -- true", "from 0 to 255"},
		{"run --dsn=host=nowhere k -- true", "it must begin with postgres:// or mysql://"},
		{"run --dsn=redis://nowhere k -- true", "it must begin with postgres:// or mysql://"},
		{"run --dsn=postgres://h:port/ k -- true", "URL"},
		{"run --dsn=mysql://h/d?timeout=x k -- true", "its parameters: "},
		{"run --dsn=postgres://h/d?sslmode=perhaps k -- true", "sslmode"},
		{"run --dsn=mysql://h k -- true", "names no database"},
		{"install --dsn=mysql://h/ --table `a.b`", "names no database"},
		{"doctor --dsn=mysql://h", "--table database.txlock_slots"},
		{"status --watch", "--watch needs a terminal"},
		{"status --watch --json", "none of the others can be"},
		{"break", "break takes one KEY"},
		{"break a b", "break takes one KEY"},
		{"break k", "give --yes"},
		{"install k", "install takes no arguments"},
		{"install --slots 0", "from 1 to 1048576"},
		{"schema --slots 1048577", "from 1 to 1048576"},
		{"schema --system oracle", "it must be postgres or mysql"},
		{"schema --system postgres --table a.b.c", "--table"},
		{"doctor k", "doctor takes no arguments"},
		{"status --table a.b.c", `--table: invalid name "a.b.c"`},
		{"run --table a.b.c k -- true", `--table: invalid name "a.b.c"`},
		{"install --dsn=mysql://h/d --table a.b.c", `--table: invalid name "a.b.c"`},
		{"completion bsh", `unknown shell "bsh": it must be bash`},
		{"completion bash zsh", `unknown command "zsh"`},
	} {
		r := run(t, unreachable, strings.Fields(c.typed)...)
		require.Equal(t, 64, r.code, c.typed)
		require.Empty(t, r.stdout, c.typed)
		require.Contains(t, r.stderr, c.told, c.typed)
		require.Regexp(t, `^txlock: [^\n]+\n$`, r.stderr, c.typed)
	}
	for _, arguments := range [][]string{
		{"run", "k", "--", "true"},
		{"status"},
		{"break", "-y", "k"},
		{"doctor"},
		{"install"},
		{"schema"},
	} {
		r := run(t, nil, arguments...)
		require.Equal(t, 64, r.code)
		require.Contains(t, r.stderr, "set TXLOCK_DSN")
	}
	r := run(t, unreachable, "run", "", "--", "true")
	require.Equal(t, 64, r.code)
	require.Contains(t, r.stderr, "a key is empty")
}

// A command whose output nobody reads ends as by SIGPIPE. Output that cannot be written is an
// error.
func TestUnwritten(t *testing.T) {
	t.Parallel()
	for _, typed := range []string{"schema --system postgres", "completion bash", "--help", "help run", "completion"} {
		code, complaint := runInto(unread(t), strings.Fields(typed)...)
		require.Equal(t, 141, code, typed)
		require.Empty(t, complaint, typed)
		full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
		if err != nil {
			continue // not every system has it
		}
		code, complaint = runInto(full, strings.Fields(typed)...)
		require.Equal(t, 1, code, typed)
		require.Contains(t, complaint, "txlock: write: ", typed)
	}
}

// unread is a pipe without a reader.
func unread(t *testing.T) *os.File {
	t.Helper()
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	return writer
}

func runInto(out *os.File, arguments ...string) (code int, complaint string) {
	defer out.Close()
	var b strings.Builder
	c := command(nil, arguments...)
	c.Stdout, c.Stderr = out, &b
	_ = c.Run()
	return c.ProcessState.ExitCode(), b.String()
}

// Help, the version, completion and the schema need no server. They go to standard output.
func TestWithoutServer(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ typed, told string }{
		{"", "Available Commands"},
		{"--help", "   4  of break: not confirmed"},
		{"help run", "TXLOCK_TOKEN"},
		{"once --help", "at least once"},
		{"schema --system mysql", "txlock_slots_once"},
		{"run --help", "--conflict-exit-code"},
		{"status -h", "for_seconds"},
		{"break -h", "Exit codes"},
		{"doctor -h", "Exit codes"},
		{"--version", "txlock "},
		{"completion bash", "__start_txlock"},
		{"completion zsh", "#compdef txlock"},
		{"completion fish", "complete -c txlock"},
		{"completion", "Available Commands"},
		{"help", "Exit codes"},
		{"help completion bash", "bash-completion"},
		{"install -h", "(default: as installed, or 65536)"},
		{"schema -h", "(default: 65536)"},
		{"__complete st", "status"},
		{"schema --system postgres", `CREATE TABLE`},
		{"schema --dsn mysql://nowhere/d --table ops.locks --slots 3", "`ops`.`locks_epochs`"},
		{"schema --system postgres", "txlock_slots_leaders"},
	} {
		r := run(t, nil, strings.Fields(c.typed)...)
		require.Zero(t, r.code, "%s: %s", c.typed, r.stderr)
		require.Contains(t, r.stdout, c.told, c.typed)
	}
	for _, name := range []string{
		"", "run", "once", "sweep", "claim", "release", "status", "break", "serve", "doctor", "install",
		"schema", "slot",
	} {
		for line := range strings.Lines(run(t, nil, append(strings.Fields(name), "--help")...).stdout) {
			require.LessOrEqual(t, utf8.RuneCountInString(line), 101, line)
		}
	}
}
