//go:build !linux

package wire

import "time"

func sleep(d time.Duration) { time.Sleep(d) }
