package testbed

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

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

// asItShips is the durability of etcd, which has no query for it.
var asItShips = []results.Setting{{Name: "log", Value: "as it ships: flushed at each change (not queried)"}}

func describe(ctx context.Context, server contest.Server, address string) (
	version string, durability []results.Setting, err error,
) {
	switch server {
	case contest.Redis:
		return describeRedis(ctx, address)
	case contest.Etcd:
		text, err := get(ctx, address+"/version")
		if err != nil {
			return "", nil, err
		}
		var numbers struct{ Etcdserver string }
		err = json.Unmarshal([]byte(text), &numbers)
		return numbers.Etcdserver, asItShips, err
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
	info, err := talk(ctx, address, "INFO server\r\nQUIT\r\n", "redis_version:")
	if err != nil {
		return "", nil, err
	}
	for _, name := range []string{"appendonly", "save"} {
		value, err := talk(ctx, address, "CONFIG GET "+name+"\r\nQUIT\r\n", "")
		if err != nil {
			return "", nil, err
		}
		// The answer is an array of two texts, each after a line with its length. The last line is
		// the answer to QUIT.
		lines := strings.Split(strings.TrimSpace(value), "\r\n")
		if len(lines) < 6 {
			return "", nil, fmt.Errorf("CONFIG GET %s: %q", name, value)
		}
		durability = append(durability, results.Setting{Name: name, Value: lines[4]})
	}
	return info, durability, nil
}

// talk sends a request to a server that closes the connection after its answer. It returns the
// answer or, with a prefix, the rest of the line that begins with it.
func talk(ctx context.Context, address, request, prefix string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	if err := conn.SetDeadline(deadline); err != nil {
		return "", err
	}
	if _, err := io.WriteString(conn, request); err != nil {
		return "", err
	}
	text, err := io.ReadAll(conn)
	if err != nil || prefix == "" {
		return string(text), err
	}
	for lines := bufio.NewScanner(strings.NewReader(string(text))); lines.Scan(); {
		if value, found := strings.CutPrefix(lines.Text(), prefix); found {
			return value, nil
		}
	}
	return "", fmt.Errorf("%s: no %q in the answer %q", address, prefix, text)
}

// get reads a page.
func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	request.Close = true // does not keep the connection
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return string(text), err
}
