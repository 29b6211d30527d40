package testbed

import (
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	client "github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"
)

// census counts the sessions of all fixtures with one query. All tests that ask before the query
// begins get the same answer: many of them wait at once, and InnoDB's views serve an old picture to
// whoever reads them again too soon.
type census struct {
	admin *sql.DB
	query string // rows of a label, its sessions that wait for a lock, and those in a transaction
	views *rested

	mu   sync.Mutex
	next *picture // the one that has not begun
}

// picture is an answer of the server.
type picture struct {
	begin    sync.Mutex
	taken    bool
	sessions map[string]sessions // by label
	err      error
}

type sessions struct{ waiting, open int }

// of is what the server says about a fixture. The server is asked after the call, never before.
func (c *census) of(t *testing.T, label string) sessions {
	t.Helper()
	c.mu.Lock()
	if c.next == nil {
		c.next = &picture{}
	}
	p := c.next
	c.mu.Unlock()
	p.begin.Lock() // the first takes it, the others find it taken
	defer p.begin.Unlock()
	if !p.taken {
		c.views.Ask(func() {
			c.mu.Lock()
			c.next = nil // who asks from now on may know more than this answer will
			c.mu.Unlock()
			p.sessions, p.err = c.take()
		})
		p.taken = true
	}
	require.NoError(t, p.err)
	return p.sessions[label]
}

func (c *census) take() (taken map[string]sessions, err error) {
	const notUTF8 = 3854 // MySQL, as long as some session runs a statement with such bytes
	for range 50 {
		taken, err = c.look()
		var failed *client.MySQLError
		if !errors.As(err, &failed) || failed.Number != notUTF8 {
			break
		}
		time.Sleep(PollEvery)
	}
	return taken, err
}

func (c *census) look() (map[string]sessions, error) {
	rows, err := c.admin.Query(c.query)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	taken := map[string]sessions{}
	for rows.Next() {
		var label string
		var s sessions
		if err := rows.Scan(&label, &s.waiting, &s.open); err != nil {
			return nil, err
		}
		taken[label] = s
	}
	return taken, rows.Err()
}

// rested keeps a pause between two reads of the same views.
type rested struct {
	pause time.Duration
	mu    sync.Mutex
	last  time.Time
}

// Ask calls query once the pause since the last one is over.
func (r *rested) Ask(query func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	<-time.After(time.Until(r.last.Add(r.pause)))
	defer func() { r.last = time.Now() }()
	query()
}
