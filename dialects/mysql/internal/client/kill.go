package client

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/internal/sqlconn"
	"github.com/txlock/txlock/dialects/mysql/internal/server"
)

var (
	process = rand.Text() // among all clients of the server
	tags    atomic.Uint64
)

// Await is interrupt.Await by KILL QUERY of a statement that has tag, which is no part of another.
func (p *Pool) Await(ctx context.Context, told bool, patience time.Duration, cut func(),
	statement func(ctx context.Context, tag string) error,
) error {
	tag := process + "-" + strconv.FormatUint(tags.Add(1), 10) + " "
	// How often no statement with the tag is seen before the answer is taken for lost: a KILL QUERY
	// that falls between two statements of a query gets none.
	const enough = 3
	unreached, unseen := false, 0
	err := interrupt.Await(ctx, told, patience, func(ctx context.Context) error {
		seen, err := p.kill(ctx, tag, interrupt.PatienceWith(p.Control))
		unreached = errors.Is(err, interrupt.ErrNoConnection) || errors.Is(err, context.DeadlineExceeded)
		if err == nil && !seen {
			unseen++
		}
		if unseen >= enough && patience <= interrupt.Patience {
			return interrupt.ErrNoConnection // so that the connection is cut
		}
		return err
	}, cut, func(ctx context.Context) error { return statement(ctx, tag) })
	if unreached && err != nil && server.Number(err) == 0 { // else the server has answered just then
		err = fmt.Errorf("%w (the connection was closed, for there was no other to interrupt the wait from)", err)
		// Closing the waiter's connection has made room in the pool for one that ends the waiter.
		go func() { _, _ = p.kill(context.WithoutCancel(ctx), tag, interrupt.CleanUp) }()
	}
	return err
}

// kill ends the statement that carries tag, and not the transaction. Before a query of several
// statements runs, the server shows all of it: the first is not to be hit. The search, which some
// session may still run, does not show the tag.
func (p *Pool) kill(ctx context.Context, tag string, limit time.Duration) (seen bool, err error) {
	return p.tell(ctx, limit, "KILL QUERY ", fmt.Sprintf("LOCATE(x'%x', INFO) > 0 AND "+
		"LOCATE('%s', SUBSTRING_INDEX(INFO, x'%[1]x', 1)) = 0", tag, separator))
}

// tell sends a command for each session that meets a condition, on another connection. Without
// PROCESS a user sees the own sessions.
func (p *Pool) tell(ctx context.Context, limit time.Duration, command, condition string) (seen bool, err error) {
	err = sqlconn.Beside(ctx, p.Control, limit, func(conn *sql.Conn) error {
		found, err := processes(ctx, Conn{Conn: &sqlconn.Conn{Conn: conn}}, condition)
		for _, session := range found {
			_, err = conn.ExecContext(ctx, command+session[0])
		}
		seen = len(found) > 0
		return err
	})
	return seen, err
}

// processes are the number and the address of each session that meets a condition. The view of
// performance_schema may be empty. The other is error 3854 while somebody's prepared statement has
// bytes for an argument.
func processes(ctx context.Context, c Conn, condition string) (lines [][]string, err error) {
	for _, view := range []string{
		"/*!80022 performance_schema.processlist */ /*M! information_schema.PROCESSLIST */",
		"information_schema.PROCESSLIST",
	} {
		lines, err = c.Grid(ctx, "SELECT ID, HOST FROM "+view+" WHERE "+condition)
		if len(lines) > 0 {
			break
		}
	}
	return lines, err
}

// Thread is the condition that finds a session at the server: by its number, and by the address of
// its client, port included. Numbers come again when the server has restarted, and on the next one.
type Thread string

// Thread is that of the connection, or empty. A connection of Open is asked once, and has none
// where its session may become another client's: a proxy in between has a port of its own.
func (c Conn) Thread(ctx context.Context) (at Thread) {
	if c.Owned != nil && c.Owned.thread != nil {
		return *c.Owned.thread
	}
	lines, err := processes(ctx, c, "ID = CONNECTION_ID()")
	if err != nil || len(lines) != 1 {
		return ""
	}
	host, _ := server.Literal(dialects.Value{Text: lines[0][1]})
	at = Thread("ID = " + lines[0][0] + " AND HOST = " + host)
	if c.Owned != nil {
		socket, is := c.Socket.(*net.TCPConn)
		if !is || !strings.HasSuffix(lines[0][1], fmt.Sprint(":", socket.LocalAddr().(*net.TCPAddr).Port)) {
			at = ""
		}
		c.Owned.thread = &at
	}
	return at
}

// End ends a session at the server, which does not see that its client is gone while a statement
// runs. The connection is closed before, so that a pool of one has room for another, which may lead
// to another server. A session that is idle ends by itself, or is another client's already.
func (p *Pool) End(ctx context.Context, at Thread) {
	if at == "" {
		return
	}
	brief, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_, _ = p.tell(brief, time.Second, "KILL ", "COMMAND IN ('Query', 'Execute') AND "+string(at))
}
