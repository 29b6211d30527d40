package contestants

import (
	"slices"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/bench/contest"
	"github.com/txlock/txlock/dialects"
)

// registerQueues registers a contestant with other queues than the default, in the measurements of
// crowds alone.
func (open opener) registerQueues(c contest.Contestant, client string) {
	name := c.Name
	for _, q := range queues {
		if slices.Contains(q.clients, client) {
			c.Name, c.Remark, c.Parts = name+", "+q.name, q.remark, contest.Crowd
			open.register(c, form{slots: dialects.DefaultSlots, use: useLock, options: []txlock.Option{q.option}})
		}
	}
}

// queues are the other queues, and the clients that have them here.
var queues = []struct {
	name, remark string
	option       txlock.Option
	clients      []string
}{
	{
		"no queue", "all callers queue at the server", txlock.WithQueue(1_000_000),
		[]string{"pgx", "mysql.New", "mysql.New on MariaDB"},
	},
	{
		"WithQueue(2)", "two callers at a time queue at the server", txlock.WithQueue(2),
		[]string{"MySQL", "MariaDB"},
	},
}
