package testbed

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	goredis "github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/database"
	"github.com/txlock/txlock/bench/results"
)

// Describe returns the versions and durability of the running servers, as the servers themselves
// report them, where they can be asked.
func (t *Testbed) Describe(ctx context.Context) (all []results.Server, err error) {
	for _, server := range contest.Servers {
		running := t.running[server]
		if running == nil {
			continue
		}
		// The path on this machine is nobody else's business.
		origin, _, _ := strings.Cut(running.Origin, ", ")
		origin, _, _ = strings.Cut(origin, " in /")
		described := results.Server{Name: string(server), Origin: origin}
		described.Version, described.Durability, err = describe(ctx, server, running.DSN)
		if err != nil {
			return nil, fmt.Errorf("settings of %s: %w", server, err)
		}
		all = append(all, described)
	}
	return all, nil
}

func describe(ctx context.Context, server contest.Server, address string) (
	version string, durability []results.Setting, err error,
) {
	switch server {
	case contest.Redis:
		return describeRedis(ctx, address)
	case contest.Etcd:
		client, err := clientv3.New(clientv3.Config{Endpoints: []string{address}, Logger: zap.NewNop()})
		if err != nil {
			return "", nil, err
		}
		defer client.Close()
		status, err := client.Status(ctx, address)
		if err != nil {
			return "", nil, err
		}
		durability := results.Setting{Name: "log", Value: "as it ships: flushed at each change (not queried)"}
		return status.Version, []results.Setting{durability}, nil
	case contest.PostgreSQL:
		return describeSQL(ctx, server, address, "SHOW server_version", "SELECT name, setting FROM pg_settings "+
			"WHERE name IN ('fsync', 'synchronous_commit', 'wal_sync_method', 'full_page_writes') ORDER BY name")
	}
	return describeSQL(ctx, server, address, "SELECT version()", "SHOW GLOBAL VARIABLES "+
		"WHERE Variable_name IN ('innodb_flush_log_at_trx_commit', 'innodb_flush_method', 'log_bin', 'sync_binlog')")
}

func describeSQL(ctx context.Context, server contest.Server, address, version, settings string) (
	string, []results.Setting, error,
) {
	db, err := database.SQL(ctx, server, address, 1)
	if err != nil {
		return "", nil, err
	}
	defer db.Close()
	var number string
	if err := db.QueryRowContext(ctx, version).Scan(&number); err != nil {
		return "", nil, err
	}
	rows, err := db.QueryContext(ctx, settings)
	if err != nil {
		return "", nil, err
	}
	defer rows.Close()
	var all []results.Setting
	for rows.Next() {
		var one results.Setting
		if err := rows.Scan(&one.Name, &one.Value); err != nil {
			return "", nil, err
		}
		all = append(all, one)
	}
	return strings.Fields(number)[0], all, rows.Err()
}

func describeRedis(ctx context.Context, address string) (version string, durability []results.Setting, err error) {
	client := goredis.NewClient(&goredis.Options{Addr: address})
	defer client.Close()
	server, err := client.InfoMap(ctx, "server").Result()
	if err != nil {
		return "", nil, err
	}
	for _, name := range []string{"appendonly", "save"} {
		value, err := client.ConfigGet(ctx, name).Result()
		if err != nil {
			return "", nil, err
		}
		durability = append(durability, results.Setting{Name: name, Value: value[name]})
	}
	return server["Server"]["redis_version"], durability, nil
}

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
