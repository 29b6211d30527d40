package protocol

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/servers"
)

var begin = sqltext.Silent("begin")

func connect(t *testing.T) *Sender {
	t.Helper()
	s, err := servers.Start(t.Context(), servers.Postgres(), servers.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Stop() })
	conn, err := pgx.Connect(t.Context(), s.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	sender := Of(conn)
	require.True(t, sender.Serves())
	return sender
}

// end ends a transaction, and returns how many statements the server keeps.
func (s *Sender) end(t *testing.T) (kept string) {
	t.Helper()
	require.NoError(t, s.Exec(t.Context(), "rollback"))
	columns, err := s.Run(t.Context(), sqltext.Script{sqltext.With("select count(*) from pg_prepared_statements")}, "",
		nil)
	require.NoError(t, err)
	return columns[0][0]
}

func TestSender(t *testing.T) {
	s := connect(t)
	const undo = "rollback; begin"
	script := sqltext.Script{begin, sqltext.With("select $1::int + 1", "1"), {SQL: "select 'b'"}}
	run := func() {
		t.Helper()
		columns, err := s.Run(t.Context(), script, undo, nil)
		require.NoError(t, err)
		require.Equal(t, [][]string{nil, {"2"}, {"b"}}, columns)
	}
	run()
	require.Equal(t, "3", s.end(t))
	run()
	require.Equal(t, "3", s.end(t))

	// What was not reached was not prepared, and what failed for its arguments was.
	divide := sqltext.Script{begin, sqltext.With("select 1 / $1::int", "0"), {SQL: "select 'c'"}}
	for range 2 {
		columns, err := s.Run(t.Context(), divide, undo, nil)
		require.Equal(t, server.DivisionByZero, server.State(err))
		require.Len(t, columns, 1)
		s.end(t)
	}
	divide[1].Args[0] = "1"
	_, err := s.Run(t.Context(), divide, undo, nil)
	require.NoError(t, err)
	s.end(t)
	require.Zero(t, s.forgotten, "the server has all that it should")

	// The server forgets, or a statement's result has another type.
	for range maxForgotten + 1 {
		require.NoError(t, s.Exec(t.Context(), "deallocate all"))
		run()
		s.end(t)
		run()
		s.end(t)
	}
	require.Equal(t, maxForgotten, s.forgotten)
	require.False(t, s.keeps(), "a pooler is in between, that mixes up its clients")
	require.NoError(t, s.Exec(t.Context(), "create temp table changing (id int)"))
	s.forgotten = 0
	script = sqltext.Script{begin, {SQL: "select id from changing"}, sqltext.With("select $1::int + 1", "1")}
	for range 2 {
		columns, err := s.Run(t.Context(), script, undo, nil)
		require.NoError(t, err)
		require.Equal(t, [][]string{nil, nil, {"2"}}, columns)
		s.end(t)
		require.NoError(t, s.Exec(t.Context(), "alter table changing alter id type text"))
	}
	require.Zero(t, s.forgotten)

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = s.Run(ctx, script, undo, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.True(t, s.Serves(), "nothing was sent")
}

// Behind a pooler, another client may have prepared the proof in the same session.
func TestSenderCommitMixedUp(t *testing.T) {
	s := connect(t)
	require.NoError(t, s.Exec(t.Context(), "prepare txlock_proof_0 as select 1; begin"))
	err := s.Commit(t.Context(), sqltext.With("select $1", "mark"))
	require.Equal(t, server.KnownStatement, server.State(err))
	require.ErrorContains(t, err, "max_prepared_statements")
}

// What is behind a savepoint is undone to it, and safe is called when it is set.
func TestSenderBehindSavepoint(t *testing.T) {
	s := connect(t)
	require.NoError(t, s.Exec(t.Context(), "create temp table words (word text)"))
	require.NoError(t, s.Exec(t.Context(), "begin; insert into words values ('a')"))
	savepoint, release := sqltext.Silent("savepoint s"), sqltext.Silent("release savepoint s")
	safe := 0
	fly := func(work sqltext.Statement, args ...any) ([][]string, error) {
		safe = 0
		work.Work = &sqltext.Work{Args: args, Counted: true}
		script := sqltext.Script{savepoint, {SQL: "select 'locked'"}, work, release}
		return s.Fly(t.Context(), script, func() {
			if safe++; safe == 1 {
				require.False(t, s.conn.IsClosed())
			}
		})
	}
	counted := sqltext.Statement{SQL: "with w as (insert into words values ($1) returning 1) select count(*) from w"}
	for range 2 { // the second time, the type of $1 is known
		columns, err := fly(counted, "b")
		require.NoError(t, err)
		require.Equal(t, [][]string{nil, {"locked"}, {"1"}, nil}, columns)
		require.Positive(t, safe)
	}
	var refused sqltext.RefusedError
	columns, err := fly(sqltext.Statement{SQL: "select $1::no_type"}, "b")
	require.ErrorAs(t, err, &refused)
	require.Len(t, columns, 2, "the lock is there")
	require.NoError(t, s.Exec(t.Context(), "rollback to savepoint s"))
	_, err = fly(counted, make(chan int))
	require.ErrorAs(t, err, &refused)
	require.NoError(t, s.Exec(t.Context(), "rollback to savepoint s"))
	for _, left := range [][]any{{pgx.NamedArgs{"a": 1}}, {strings.Repeat("x", maxBytes+1)}} {
		_, err = fly(counted, left...)
		require.ErrorIs(t, err, errLeft)
		require.Zero(t, safe)
	}

	require.NoError(t, s.Exec(t.Context(), "commit; begin")) // with no savepoint
	script := sqltext.Script{savepoint, {SQL: "select count(*) from words"}, release}
	for range 3 {
		columns, err := s.Run(t.Context(), script, "rollback to savepoint s", func() {})
		require.NoError(t, err)
		require.Equal(t, "3", columns[1][0])
		require.NoError(t, s.Exec(t.Context(), "deallocate all"))
	}
}
