package contestants_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"testing"

	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/bench/database"
	"github.com/txlock/txlock/bench/testbed"
	"github.com/txlock/txlock/internal/test/servers"
)

// bed has the servers that run during the tests.
var bed *testbed.Testbed

// atATime is how many contestants are tested at a time. Most of their time is waiting.
const atATime = "12"

func TestMain(m *testing.M) {
	flag.Parse()
	if err := flag.Set("test.parallel", atATime); err != nil {
		panic(err)
	}
	bed = testbed.Start(context.Background(), contest.Servers, servers.Options{})
	code := 1
	if err := prepare(); err != nil {
		fmt.Println(err)
	} else {
		code = m.Run()
	}
	_ = bed.Stop()
	os.Exit(code)
}

// prepare creates the rows that work in a transaction increments, one for each contestant.
func prepare() error {
	for _, server := range contest.Servers {
		if err := bed.Missing(server); err != nil {
			return err
		}
	}
	statements := []string{
		"DROP TABLE IF EXISTS bench_test", "CREATE TABLE bench_test (id INT PRIMARY KEY, value INT NOT NULL)",
	}
	for id := range contest.All() {
		statements = append(statements, fmt.Sprintf("INSERT INTO bench_test VALUES (%d, 0)", id))
	}
	for _, server := range contest.Databases {
		if err := database.Run(context.Background(), server, bed.Address(server), statements...); err != nil {
			return err
		}
	}
	return nil
}
