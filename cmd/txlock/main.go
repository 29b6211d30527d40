// Command txlock holds locks of package txlock from a shell, and shows who holds them and who waits
// for them. See txlock --help.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"syscall"

	"github.com/go-sql-driver/mysql"

	"github.com/txlock/txlock/cmd/txlock/internal/dsn"
	"github.com/txlock/txlock/cmd/txlock/internal/terminal"
)

func main() {
	arguments := scrubbed()
	_ = mysql.SetLogger(log.New(io.Discard, "", 0)) // the driver only logs errors that it also returns
	signals := watchSignals()
	code := execute(signals.ctx, signals, arguments)
	os.Exit(code)
}

// execute runs the command line and returns the exit code.
func execute(ctx context.Context, signals *signals, arguments []string) int {
	o := &options{signals: signals, typed: arguments}
	out := &output{to: os.Stdout}
	root := newRoot(o, out)
	root.SetArgs(arguments)
	called, err := root.ExecuteContextC(ctx)
	var end *ending
	switch {
	case errors.Is(out.failed, syscall.EPIPE):
		end = &ending{code: exitUnread}
	case errors.As(err, &end):
	case out.failed != nil:
		end = &ending{code: exitError, text: "write: " + out.failed.Error()}
	case err != nil: // an error of cobra means that the command line is wrong
		end = &ending{code: exitUsage, text: fmt.Sprintf(`%v; see "%s --help"`, err, called.CommandPath())}
	default:
		return 0
	}
	if code, ok := signals.code(); ok && end.code != exitLost && !end.own {
		end = &ending{code: code, text: end.text}
	}
	if end.text != "" {
		o.say("%s", end.text)
	}
	return end.code
}

// exitUnread is for output that nobody reads any more, as in "txlock status | head -1". It is the
// code that a shell gives for SIGPIPE.
const exitUnread = 128 + 13

// output remembers the first error of a write, because not every caller of Write reports it.
type output struct {
	to     io.Writer
	failed error
}

// Write implements io.Writer.
func (o *output) Write(text []byte) (int, error) {
	n, err := o.to.Write(text)
	o.failed = cmp.Or(o.failed, err)
	return n, err
}

// say writes a line to standard error, without passwords and terminal control characters.
func (o *options) say(format string, arguments ...any) {
	text := terminal.Clean(fmt.Sprintf(format, arguments...))
	fmt.Fprintln(os.Stderr, "txlock: "+o.server.Redact(dsn.Redact(text)))
}
