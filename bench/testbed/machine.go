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
	m.CPU = processor()
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return m, err
	}
	_, _ = fmt.Sscan(string(load), &m.LoadBefore)
	m.Flush, err = flush()
	return m, err
}

// processor is the name of the machine's first processor.
func processor() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
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
