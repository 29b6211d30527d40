package main

import (
	"context"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/txlock/txlock/cmd/txlock/internal/child"
)

// signals ends what the command does at the first signal, and the command itself at the second:
// unless they are handed to a child.
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
		// by nohup, or a shell that runs us in the background: then it stays so, for a child too
		if !signal.Ignored(sig) {
			signal.Notify(s.received, sig)
		}
	}
	// A reader of our output that is gone is an error of the write, and no reason to leave a child
	// alone.
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

// take hands the signals that come from now on to the caller.
func (s *signals) take() <-chan os.Signal {
	<-s.taken
	return s.received
}

// code is what to exit with after a signal.
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
