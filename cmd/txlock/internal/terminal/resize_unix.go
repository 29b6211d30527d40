//go:build unix

package terminal

import (
	"os"
	"os/signal"
	"syscall"
)

func resized() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGWINCH)
	return c
}
