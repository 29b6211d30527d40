package main

import (
	"os"
	"strings"
	"unsafe"

	"github.com/txlock/txlock/cmd/txlock/internal/dsn"
)

// scrubbed returns a copy of the arguments, and overwrites the passwords in their originals, which
// the system shows to everybody (ps, /proc/pid/cmdline). On Unix Go's strings of os.Args are that
// very memory, which is the process's own to write to; where they are not, nothing is gained and
// nothing lost. What stands behind "--" is a child's, and is left alone.
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
