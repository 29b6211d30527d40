package contestants_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/database"
	"github.com/txlock/txlock/bench/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// addresses has the servers that run during the tests.
var addresses = map[contest.Server]string{}

// atATime is how many contestants are tested at a time. Most of their time is waiting.
const atATime = "12"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", atATime); err != nil {
		panic(err)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var mu sync.Mutex
	var started []*servers.Server
	var failed error
	var group sync.WaitGroup
	for _, server := range contest.Servers {
		group.Go(func() {
			running, err := testbed.Run(context.Background(), server, servers.Options{})
			mu.Lock()
			defer mu.Unlock()
			failed = errors.Join(failed, err)
			if err == nil {
				started = append(started, running)
				addresses[server] = running.DSN
			}
		})
	}
	group.Wait()
	defer func() {
		for _, instance := range started {
			_ = instance.Stop()
		}
	}()
	for _, server := range contest.Databases {
		failed = errors.Join(failed, createRows(server))
	}
	if failed != nil {
		fmt.Println(failed)
		return 1
	}
	return m.Run()
}

// createRows creates the rows that work in a transaction increments, one for each contestant.
func createRows(server contest.Server) error {
	if addresses[server] == "" {
		return nil // it did not start, and failed says why
	}
	db, err := database.SQL(context.Background(), server, addresses[server], 1)
	if err != nil {
		return err
	}
	defer db.Close()
	statements := []string{
		"DROP TABLE IF EXISTS bench_test", "CREATE TABLE bench_test (id INT PRIMARY KEY, value INT NOT NULL)",
	}
	for id := range contest.All() {
		statements = append(statements, fmt.Sprintf("INSERT INTO bench_test VALUES (%d, 0)", id))
	}
	for _, statement := range statements {
		if _, err := db.Exec(statement); err != nil {
			return fmt.Errorf("%s: %s: %w", server, statement, err)
		}
	}
	return nil
}
