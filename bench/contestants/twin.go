package contestants

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/txlock/txlock/bench/contest"
	pools "github.com/txlock/txlock/bench/database"
)

// twin sends what clients of txlock send for a lock of one key, in the same flights, by the client
// library alone. It reads no answer, checks nothing, and ends no wait.
type twin struct {
	server contest.Server
	way    string   // of the client library
	of     []string // the clients of txlock
	open   func(ctx context.Context, server contest.Server, env contest.Environment) (carrier, error)
	sends  map[use]exchange
}

// exchange is what goes before the work, and behind it.
type exchange struct{ before, behind []flight }

// flight goes in one trip.
type flight []statement

// statement has SLOT in place of the number of the slot, also as an argument.
type statement struct {
	sql  string
	args []any
}

// literal is a text without arguments.
func (s statement) literal() string {
	text := s.sql
	for i, arg := range s.args {
		text = strings.ReplaceAll(text, "$"+strconv.Itoa(i+1), fmt.Sprintf("'%v'", arg))
	}
	return text
}

func init() {
	for _, t := range twins {
		for u, sent := range t.sends {
			contest.Register(contest.Contestant{
				Name: t.name(u), Group: contest.ByHand, Server: t.server, Waits: contest.Queued,
				Remark: "what txlock sends for this, without the library", Parts: contest.Turns,
				Prepare: func(ctx context.Context, env contest.Environment) error {
					return errors.Join(seedSlots(ctx, t.server, env), createCounter(ctx, t.server, env))
				},
				Open: func(ctx context.Context, env contest.Environment) (contest.Client, error) {
					opened, err := t.open(ctx, t.server, env)
					return sending{opened, sent}, err
				},
			})
		}
	}
}

func (t twin) name(u use) string { return fmt.Sprintf("the same statements: %s, %s", u, t.way) }

// twinOf is the name of the contestant that sends what a use of a client of txlock sends.
func twinOf(u use, client string) string {
	for _, t := range twins {
		if slices.Contains(t.of, client) {
			return t.name(u)
		}
	}
	panic("bug: nothing is sent as by " + client)
}

// carrier takes connections of a pool, on which flights go by the client library.
type carrier interface {
	take(ctx context.Context) (line, error)
	close()
}

type line interface {
	send(ctx context.Context, f flight) error
	release()
}

// sending is a client that carries an exchange.
type sending struct {
	carrier
	exchange
}

// Hold implements contest.Client, for the first of keys.
func (s sending) Hold(ctx context.Context, keys []string, work contest.Work) error {
	on, err := s.take(ctx)
	if err != nil {
		return err
	}
	defer on.release()
	slot := strconv.FormatInt(slotOf(keys[0]), 10)
	for _, f := range s.before {
		if err := on.send(ctx, f.to(slot)); err != nil {
			return err
		}
	}
	if s.behind == nil { // an Exec
		return nil
	}
	failed := work(ctx, nil)
	for _, f := range s.behind {
		failed = errors.Join(failed, on.send(ctx, f))
	}
	return failed
}

// Close implements contest.Client.
func (s sending) Close() error {
	s.close()
	return nil
}

// to is the flight with the number of a slot.
func (f flight) to(slot string) flight {
	sent := slices.Clone(f)
	for i, s := range sent {
		if len(s.args) == 1 && s.args[0] == "SLOT" {
			sent[i].args = []any{slot}
		} else if len(s.args) == 0 {
			sent[i].sql = strings.ReplaceAll(s.sql, "SLOT", slot)
		}
	}
	return sent
}

// pgxPool is a carrier.
type pgxPool struct{ pool *pgxpool.Pool }

func openPGX(ctx context.Context, _ contest.Server, env contest.Environment) (carrier, error) {
	pool, err := pools.Pool(ctx, env.Address, env.Contenders)
	return pgxPool{pool}, err
}

func (p pgxPool) close() { p.pool.Close() }

func (p pgxPool) take(ctx context.Context) (line, error) {
	conn, err := p.pool.Acquire(ctx)
	return pgxLine{conn}, err
}

type pgxLine struct{ conn *pgxpool.Conn }

func (l pgxLine) release() { l.conn.Release() }

func (l pgxLine) send(ctx context.Context, f flight) error { return inBatch(ctx, l.conn.Conn(), f) }

// inBatch sends one text without arguments as it is, and all else in a batch.
func inBatch(ctx context.Context, conn *pgx.Conn, f flight) error {
	if len(f) == 1 && len(f[0].args) == 0 {
		_, err := conn.Exec(ctx, f[0].sql)
		return err
	}
	var batch pgx.Batch
	for _, s := range f {
		batch.Queue(s.sql, s.args...)
	}
	return conn.SendBatch(ctx, &batch).Close()
}

// sqlPool is a carrier. Where a transaction begins by itself, database/sql begins and ends none.
type sqlPool struct{ db *sql.DB }

func openSQL(ctx context.Context, server contest.Server, env contest.Environment) (carrier, error) {
	db, err := pools.SQL(ctx, server, env.Address, env.Contenders)
	return sqlPool{db}, err
}

func openQueries(ctx context.Context, server contest.Server, env contest.Environment) (carrier, error) {
	config, err := mysql.ParseDSN(env.Address)
	if err != nil {
		return nil, err
	}
	config.MultiStatements = true
	config.Params = map[string]string{"autocommit": "0"}
	env.Address = config.FormatDSN()
	return openSQL(ctx, server, env)
}

func (p sqlPool) close() { _ = p.db.Close() }

func (p sqlPool) take(ctx context.Context) (line, error) {
	conn, err := p.db.Conn(ctx)
	return &sqlLine{conn: conn}, err
}

type sqlLine struct {
	conn *sql.Conn
	tx   *sql.Tx
}

func (l *sqlLine) release() { _ = l.conn.Close() }

func (l *sqlLine) send(ctx context.Context, f flight) (err error) {
	switch text := f[0].sql; {
	case text == "begin":
		l.tx, err = l.conn.BeginTx(ctx, nil)
	case text == "commit":
		err = l.tx.Commit()
	case text == "rollback":
		err = l.tx.Rollback()
	case len(f[0].args) > 0 || len(f) > 1:
		err = l.conn.Raw(func(conn any) error { return inBatch(ctx, conn.(*stdlib.Conn).Conn(), f) })
	case strings.HasSuffix(text, "FOR UPDATE") && !strings.Contains(text, "INTO"):
		err = query(ctx, l.conn, text)
	case strings.Contains(text, "for update"): // not prepared, as a text that is another each time
		err = query(ctx, l.conn, text, pgx.QueryExecModeExec)
	case text == isBegun:
		_, _ = l.conn.ExecContext(ctx, text) // is an error in a transaction
	default:
		_, err = l.conn.ExecContext(ctx, text)
	}
	return err
}
