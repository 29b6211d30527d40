package contestants

import (
	"time"

	"github.com/txlock/txlock/bench/contest"
)

func init() {
	byHand{
		Contestant: contest.Contestant{
			Name: "SELECT … FOR UPDATE", Waits: contest.Queued,
			Parts:  contest.Standard | contest.ManyKeys,
			Remark: "the row of the key, until the commit",
		},
		tables: []table{{name: "bench_row_locks", columns: "name VARCHAR(255) PRIMARY KEY", rows: everyKey}},
		client: func(db database, _ time.Duration, write func(string) string) contest.Client {
			return transactionLock[string]{
				database:  db,
				statement: write("SELECT name FROM bench_row_locks WHERE name = ? FOR UPDATE"),
				parameter: func(key string) string { return key },
			}
		},
	}.register()
}
