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
	open   func(context.Context, contest.Server, contest.Environment, exchange) (contest.Client, error)
	sends  map[use]exchange
}

// exchange is what goes before the work, and behind it.
type exchange struct{ before, behind []flight }

// flight goes in one trip.
type flight []statement

// statement has SLOT in place of the number of the slot, also as an argument, or of several. With
// the further argument HASH it stands for one of each key.
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
					return t.open(ctx, t.server, env, sent)
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

// run sends an exchange around the work.
func (e exchange) run(ctx context.Context, keys []string, work contest.Work,
	send func(context.Context, flight) error,
) error {
	for _, f := range e.before {
		if err := send(ctx, f.to(keys)); err != nil {
			return err
		}
	}
	if e.behind == nil { // an Exec
		return nil
	}
	failed := work(ctx, nil)
	for _, f := range e.behind {
		failed = errors.Join(failed, send(context.WithoutCancel(ctx), f))
	}
	return failed
}

// to is the flight with the numbers of keys.
func (f flight) to(keys []string) (sent flight) {
	slots := make([]string, len(keys))
	for i, key := range keys {
		slots[i] = strconv.FormatInt(slotOf(key), 10)
	}
	all := strings.Join(slots, ", ")
	for _, s := range f {
		switch {
		case len(s.args) == 2 && s.args[1] == "HASH":
			for _, key := range keys {
				sent = append(sent, statement{s.sql, []any{slotOf(key), hashed(key)}})
			}
			continue
		case len(s.args) == 1 && s.args[0] == "SLOT":
			s.args = []any{all}
		case len(s.args) == 0:
			s.sql = strings.ReplaceAll(s.sql, "SLOT", all)
		}
		sent = append(sent, s)
	}
	return sent
}

func openPGX(ctx context.Context, _ contest.Server, env contest.Environment, sent exchange) (contest.Client, error) {
	pool, err := pools.Pool(ctx, env.Address, env.Contenders)
	if err != nil {
		return nil, err
	}
	return holding{func(ctx context.Context, keys []string, work contest.Work) error {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		return sent.run(ctx, keys, work, func(ctx context.Context, f flight) error {
			return inBatch(ctx, conn.Conn(), f)
		})
	}, pool.Close}, nil
}

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

// openQueries is openSQL on connections on which transactions begin by themselves, as on those of
// mysql.Open, and on which a query has several statements.
func openQueries(ctx context.Context, server contest.Server, env contest.Environment, sent exchange) (contest.Client,
	error,
) {
	config, err := mysql.ParseDSN(env.Address)
	if err != nil {
		return nil, err
	}
	config.MultiStatements = true
	config.Params = map[string]string{"autocommit": "0"}
	env.Address = config.FormatDSN()
	return openSQL(ctx, server, env, sent)
}

func openSQL(ctx context.Context, server contest.Server, env contest.Environment, sent exchange) (contest.Client,
	error,
) {
	db, err := pools.SQL(ctx, server, env.Address, env.Contenders)
	if err != nil {
		return nil, err
	}
	return holding{func(ctx context.Context, keys []string, work contest.Work) error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		var tx *sql.Tx
		return sent.run(ctx, keys, work, func(ctx context.Context, f flight) (err error) {
			switch text := f[0].sql; {
			case text == "begin":
				tx, err = conn.BeginTx(ctx, nil)
			case text == "commit":
				err = tx.Commit()
			case text == "rollback":
				err = tx.Rollback()
			case len(f[0].args) > 0 || len(f) > 1:
				err = conn.Raw(func(conn any) error { return inBatch(ctx, conn.(*stdlib.Conn).Conn(), f) })
			case strings.HasSuffix(text, "FOR UPDATE") && !strings.Contains(text, "INTO"):
				err = query(ctx, conn, text)
			case strings.Contains(text, "for update"): // not prepared, as a text that is another each time
				err = query(ctx, conn, text, pgx.QueryExecModeExec)
			case text == isBegun:
				_, _ = conn.ExecContext(ctx, text) // is an error in a transaction
			default:
				_, err = conn.ExecContext(ctx, text)
			}
			return err
		})
	}, func() { _ = db.Close() }}, nil
}
