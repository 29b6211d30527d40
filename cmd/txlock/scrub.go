package main

import (
	"os"
	"strings"
	"unsafe"

	"github.com/txlock/txlock/cmd/txlock/internal/dsn"
)

// scrubbed returns a copy of the arguments and overwrites the passwords in the originals, which the
// system shows to everybody (ps, /proc/pid/cmdline). On Unix the strings in os.Args are that
// memory, and the process may write to it. On other systems this changes nothing. Arguments after
// "--" belong to a child and are left alone.
func scrubbed() []string {
	arguments := make([]string, len(os.Args))
	for i, argument := range os.Args {
		arguments[i] = strings.Clone(argument)
	}
	for _, argument := range os.Args[min(1, len(os.Args)):] {
		if argument == "--" {
			break
		}
		if len(argument) > 0 && inArgv {
			dsn.Scrub(unsafe.Slice(unsafe.StringData(argument), len(argument)))
		}
	}
	os.Args = arguments
	return arguments[min(1, len(arguments)):]
}
