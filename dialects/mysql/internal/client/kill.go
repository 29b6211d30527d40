package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
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

// NewTag names a statement in what the server shows of it. No tag is part of another.
func NewTag() string { return process + "-" + strconv.FormatUint(tags.Add(1), 10) + " " }

// ErrUnreached says that only closing its connection could end the wait.
var ErrUnreached = errors.New("the connection was closed, for there was no other to interrupt the wait from")

// Await is interrupt.Await of a statement that carries tag: it is ended by KILL QUERY.
func (p *Pool) Await(ctx context.Context, told bool, tag string, patience time.Duration, cut func(),
	statement func(context.Context) error,
) error {
	if ctx.Done() == nil {
		return statement(ctx)
	}
	unreached := false
	err := interrupt.Await(ctx, told, patience, func(ctx context.Context) error {
		err := p.kill(ctx, tag, interrupt.PatienceWith(p.Control))
		unreached = errors.Is(err, interrupt.ErrNoConnection) || errors.Is(err, context.DeadlineExceeded)
		return err
	}, cut, statement)
	if unreached && err != nil && server.Number(err) == 0 { // else the server has answered just then
		err = fmt.Errorf("%w (%w)", err, ErrUnreached)
		// Closing the waiter's connection has made room in the pool for one that ends the waiter.
		go func() { _ = p.kill(context.WithoutCancel(ctx), tag, interrupt.CleanUp) }()
	}
	return err
}

// kill ends the statement that carries tag, from another connection. The transaction goes on. The
// client library itself would close the socket, and leave the waiter in the server's queue.
func (p *Pool) kill(ctx context.Context, tag string, patience time.Duration) error {
	brief, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	conn, err := p.Control.Conn(brief)
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

// Ask runs a query beside all sessions. It does not wait for long on a pool that is full.
func (p *Pool) Ask(ctx context.Context, query string) ([][]string, error) {
	brief, cancel := context.WithTimeout(ctx, interrupt.PatienceWith(p.Control))
	defer cancel()
	conn, err := p.Control.Conn(brief)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	return server.Grid(ctx, conn, query)
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
