package client

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// prepared are the statements that the server keeps for a connection of pgx's, under names of ours.
//
// The script that begins a transaction and locks is sent with them, in messages of the protocol and
// not as a batch of pgx's. So the first lock on a connection takes no trip more, nobody describes
// results that nobody needs, and the end of the snapshot costs a message instead of a statement.
//
// pgx's own calls keep others off the connection from the first message to the last. Here it is the
// session's user alone who does: work that has left a goroutine behind, which goes on to use the
// transaction, gets an error from one of the two.
type prepared struct {
	names      map[string]string // by text
	outdated   []string          // names that are not used any more, and that the server is to forget
	generation int               // is part of new names; see renew
	works      bool              // the last script found its statements as they were
	heard      time.Time         // when the last answer had come

	// What messages are made of, again and again: a connection has one user at a time.
	parse    pgproto3.Parse
	bind     pgproto3.Bind
	unparsed []string // texts that the script brings for the first time, as far as they were not answered
}

// maxPrepared bounds the statements of a connection. Few are for the lock table, and two for each
// table of the caller's whose rows are locked. When there are more, all are prepared anew.
const maxPrepared = 256

// serves tells whether the connection is in a state to send and receive by p.
func (p *prepared) serves(conn *pgconn.PgConn) bool {
	return p != nil && !conn.IsBusy() && !conn.IsClosed()
}

// recently is how long a connection is not looked at after an answer: a server takes longer to end
// a session, and to tell.
const recently = 50 * time.Microsecond

// isFresh tells whether the server has answered just now.
func (p *prepared) isFresh() bool { return p != nil && time.Since(p.heard) < recently }

// renew has all statements prepared anew, under other names: a pooler that keeps account of names
// may have one that the server has not. It returns false when the last script has met the same
// fate: then it does not help.
func (p *prepared) renew() bool {
	helps := p.works
	clear(p.names)
	p.generation++
	p.works = false
	return helps
}

// distrust has the statements of a script prepared anew: its error may come from what they were
// when they were prepared, the type of a column, say. Those that were not answered may be known to
// a pooler all the same.
func (p *prepared) distrust(s sqltext.Script) {
	for _, statement := range s {
		p.drop(statement.SQL)
	}
	p.generation++
}

// discard has all statements prepared anew. The server, which has them, is to forget them.
func (p *prepared) discard() {
	for text := range p.names {
		p.drop(text)
	}
	p.generation++
}

func (p *prepared) drop(text string) {
	if name, known := p.names[text]; known {
		p.outdated = append(p.outdated, name)
		delete(p.names, text)
	}
}

// usual are errors that say nothing of a statement.
var usual = []string{
	server.LockNotAvailable, server.QueryCanceled, server.DeadlockDetected, server.Serialization,
	server.DivisionByZero, server.AbortedBefore,
}

// send runs a script in one round trip, and returns the first column of each statement's rows. When
// ctx ends, the connection is closed.
func (p *prepared) send(ctx context.Context, conn *pgconn.PgConn, s sqltext.Script) ([][]string, error) {
	if len(p.names)+len(s) > maxPrepared {
		p.discard()
	}
	results := 0
	columns, err := p.exchange(ctx, conn, func(to *pgproto3.Frontend) { results = p.write(to, s) })
	switch state := server.State(err); {
	case isOutdated(err):
		p.discard()
		fallthrough
	case state == server.UnknownStatement, state == server.KnownStatement:
		return columns, fmt.Errorf("%w: %w", server.ErrUnprepared, err)
	case err == nil && len(columns) != results:
		_ = conn.Close(over)
		return columns, fmt.Errorf("the server has answered %d of %d statements", len(columns), results)
	case state != "" && !slices.Contains(usual, state):
		p.distrust(s)
	case len(p.unparsed) > 0:
		p.generation++
	}
	p.works = true
	return columns, err
}

// isOutdated tells whether a statement's result has another type than when it was prepared. The
// SQLSTATE alone may mean something else.
func isOutdated(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == server.NotSupported && pg.Routine == "RevalidateCachedQuery"
}

// exec runs statements without arguments, in one simple query.
func (p *prepared) exec(ctx context.Context, conn *pgconn.PgConn, statements string) error {
	_, err := p.exchange(ctx, conn, func(to *pgproto3.Frontend) {
		p.unparsed = p.unparsed[:0]
		to.SendQuery(&pgproto3.Query{String: statements})
	})
	return err
}

// exchange sends what write writes, and reads the answer.
func (p *prepared) exchange(ctx context.Context, conn *pgconn.PgConn, write func(*pgproto3.Frontend)) (
	columns [][]string, err error,
) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	write(conn.Frontend())
	if ctx.Done() == nil {
		return p.flush(conn)
	}
	keepOpen := context.AfterFunc(ctx, func() { _ = conn.Conn().Close() })
	columns, err = p.flush(conn)
	if keepOpen() {
		return columns, err
	}
	_ = conn.Close(over) // so that it is known to be closed
	if err == nil {
		return columns, ctx.Err()
	}
	return columns, fmt.Errorf("%w: %w", ctx.Err(), err)
}

// write returns how many results will come.
func (p *prepared) write(to *pgproto3.Frontend, s sqltext.Script) (results int) {
	for _, name := range p.outdated {
		to.SendClose(&pgproto3.Close{ObjectType: 'S', Name: name})
	}
	p.outdated, p.unparsed = p.outdated[:0], p.unparsed[:0]
	for _, statement := range s {
		if statement.Idles { // the snapshot goes with the portal of the statement before
			to.SendClose(&pgproto3.Close{ObjectType: 'P'})
			continue
		}
		name, known := p.names[statement.SQL]
		if !known {
			name = p.nameOf(statement.SQL)
			if !slices.Contains(p.unparsed, statement.SQL) {
				p.unparsed = append(p.unparsed, statement.SQL)
				p.parse.Name, p.parse.Query = name, statement.SQL
				to.SendParse(&p.parse)
			}
		}
		p.bind.PreparedStatement, p.bind.Parameters = name, p.bind.Parameters[:0]
		for _, arg := range statement.Args {
			p.bind.Parameters = append(p.bind.Parameters, []byte(arg))
		}
		to.SendBind(&p.bind)
		to.SendExecute(&pgproto3.Execute{})
		results++
	}
	to.SendSync(&pgproto3.Sync{})
	return results
}

// nameOf says what the statement is: a pooler that mixes up two clients executes no other text.
func (p *prepared) nameOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "txlock_" + strconv.Itoa(p.generation) + "_" + hex.EncodeToString(sum[:16])
}

// flush sends what was written, and reads the answer. An error of the server leaves the connection
// open, unless pgx closes it for that error. Any other closes it.
func (p *prepared) flush(conn *pgconn.PgConn) (columns [][]string, failed error) {
	if err := conn.Frontend().Flush(); err != nil {
		_ = conn.Close(over)
		return nil, err
	}
	columns = make([][]string, 0, 3)
	var column []string
	for {
		message, err := conn.ReceiveMessage(context.Background())
		if err != nil {
			_ = conn.Close(over)
			return columns, errors.Join(failed, unanswered{err})
		}
		switch m := message.(type) {
		case *pgproto3.ParseComplete:
			if len(p.unparsed) > 0 {
				p.names[p.unparsed[0]] = p.nameOf(p.unparsed[0])
				p.unparsed = p.unparsed[1:]
			}
		case *pgproto3.DataRow:
			if len(m.Values) > 0 {
				column = append(column, string(m.Values[0]))
			}
		case *pgproto3.CommandComplete, *pgproto3.EmptyQueryResponse:
			columns, column = append(columns, column), nil
		case *pgproto3.ErrorResponse:
			failed = pgconn.ErrorResponseToPgError(m)
		case *pgproto3.ReadyForQuery:
			p.heard = time.Now()
			return columns, failed
		}
	}
}

// unanswered is the error of an answer that did not come. pgx says of it that it is safe to try
// again, and means to receive.
type unanswered struct{ error }

// SafeToRetry is asked by pgconn.SafeToRetry.
func (unanswered) SafeToRetry() bool { return false }

// Unwrap returns pgx's error.
func (e unanswered) Unwrap() error { return e.error }
