package testbed

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/txlock/txlock/bench/results"
)

// DescribeMachine describes the machine on which the benchmark runs.
func DescribeMachine() (m results.Machine, err error) {
	m.Go, m.Cores = runtime.Version(), runtime.NumCPU()
	m.CPU = field("/proc/cpuinfo", "model name")
	var kilobytes float64
	_, _ = fmt.Sscan(field("/proc/meminfo", "MemTotal"), &kilobytes)
	m.MemoryGiB = kilobytes / (1 << 20)
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return m, err
	}
	_, _ = fmt.Sscan(string(load), &m.LoadBefore)
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return m, err
	}
	m.Kernel = unix.ByteSliceToString(name.Sysname[:]) + " " + unix.ByteSliceToString(name.Release[:])
	m.Flush, err = flush()
	return m, err
}

// field is the first value of a name in a file of /proc.
func field(path, name string) string {
	text, _ := os.ReadFile(path)
	for _, line := range strings.Split(string(text), "\n") {
		if before, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(before) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// flush is the median time of a write of 4 KiB that is flushed, as for a database's log, in the
// folder of the servers' data.
func flush() (time.Duration, error) {
	path := filepath.Join(os.TempDir(), fmt.Sprintf("txlock-bench-flush-%d", os.Getpid()))
	file, err := os.Create(path)
	if err != nil {
		return 0, err
	}
	defer os.Remove(path)
	defer file.Close()
	var took []int64
	for range 50 {
		started := time.Now()
		if _, err := file.Write(make([]byte, 4<<10)); err != nil {
			return 0, err
		}
		if err := unix.Fdatasync(int(file.Fd())); err != nil {
			return 0, err
		}
		took = append(took, int64(time.Since(started)))
	}
	return time.Duration(results.Quantile(took, 0.5)), nil
}
