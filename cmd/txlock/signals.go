package main

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/txlock/txlock/cmd/txlock/internal/child"
)

// signals ends the work of the command at the first signal, and the command itself at the second,
// unless signals are handed to a child.
type signals struct {
	ctx      context.Context // ends with the first signal
	received chan os.Signal
	taken    chan struct{}
	first    atomic.Int32
}

func watchSignals() *signals {
	ctx, cancel := context.WithCancel(context.Background())
	s := &signals{ctx: ctx, received: make(chan os.Signal, 16), taken: make(chan struct{})}
	for _, sig := range child.Passed {
		// nohup, or a shell that runs txlock in the background, ignores the signal. It then stays
		// ignored, also for a child.
		if !signal.Ignored(sig) {
			signal.Notify(s.received, sig)
		}
	}
	// When the reader of the output is gone, the write fails. That is no reason to abandon a child.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	go func() {
		for {
			select {
			case sig := <-s.received:
				if !s.first.CompareAndSwap(0, int32(number(sig))) {
					os.Exit(128 + number(sig))
				}
				cancel()
			case s.taken <- struct{}{}:
				return
			}
		}
	}()
	return s
}

// take hands further signals to the caller.
func (s *signals) take() <-chan os.Signal {
	<-s.taken
	return s.received
}

// code is the exit code after a signal.
func (s *signals) code() (int, bool) {
	first := s.first.Load()
	return 128 + int(first), first != 0
}

func number(sig os.Signal) int {
	if n, ok := sig.(syscall.Signal); ok {
		return int(n)
	}
	return 2
}
