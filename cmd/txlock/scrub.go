package main

import (
	"os"
	"strings"
	"unsafe"

	"github.com/txlock/txlock/cmd/txlock/internal/dsn"
)

// scrubbed returns a copy of the arguments and overwrites the passwords and tokens in the
// originals, which the system shows to everybody (ps, /proc/pid/cmdline). On Unix the strings in
// os.Args are that memory, and the process may write to it. On other systems this changes nothing.
// Arguments after "--" belong to a child and are left alone.
func scrubbed() []string {
	arguments := make([]string, len(os.Args))
	for i, argument := range os.Args {
		arguments[i] = strings.Clone(argument)
	}
	secret := false // the argument is the value of --token
	for _, argument := range os.Args[min(1, len(os.Args)):] {
		if argument == "--" && !secret {
			break
		}
		if len(argument) > 0 && inArgv {
			text := unsafe.Slice(unsafe.StringData(argument), len(argument))
			dsn.Scrub(text)
			if secret || strings.HasPrefix(argument, "--token=") {
				copy(text[len(argument)-len(tokenIn(argument)):], strings.Repeat("x", len(argument)))
			}
		}
		secret = argument == "--token"
	}
	os.Args = arguments
	return arguments[min(1, len(arguments)):]
}

// tokenIn is the token in an argument, "--token=TOKEN" or TOKEN.
func tokenIn(argument string) string { return strings.TrimPrefix(argument, "--token=") }
