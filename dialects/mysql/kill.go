package mysql

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

var (
	process = rand.Text() // among all clients of the server
	tags    atomic.Uint64
)

// newTag names a statement in the process list. No tag is part of another.
func newTag() string { return process + "-" + strconv.FormatUint(tags.Add(1), 10) + " " }

// kill ends the statement that carries tag, from another connection. The transaction goes on. The
// client library itself would close the socket, and leave the waiter in the server's queue.
func (d *Driver) kill(ctx context.Context, tag string, patience time.Duration) error {
	brief, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := d.control.Conn(brief)
	if err != nil {
		return cmp.Or(ctx.Err(), interrupt.ErrNoConnection) // the server is slow, or the pool is full
	}
	defer conn.Close()
	thread, err := threadOf(ctx, conn, tag)
	if err != nil || thread == "" {
		return err
	}
	_, err = conn.ExecContext(ctx, "KILL QUERY "+thread)
	return err
}

// threadOf finds the thread whose statement carries tag. Every user sees at least its own threads.
func threadOf(ctx context.Context, conn *sql.Conn, tag string) (thread string, err error) {
	lines, err := server.Grid(ctx, conn, "SHOW FULL PROCESSLIST")
	for _, line := range lines { // Id, User, Host, db, Command, Time, State, Info
		if len(line) > 7 && strings.Contains(line[7], tag) {
			thread = line[0]
		}
	}
	return thread, err
}
