package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
)

// prepared are the statements that the server keeps for a connection of pgx's, under names of ours.
//
// The script that begins a transaction and locks is sent with them, in messages of the protocol and
// not as a batch of pgx's. So the first lock on a connection takes no trip more, nobody describes
// results that nobody needs, and the end of the snapshot costs a message instead of a statement.
type prepared struct {
	names map[string]string // by text
	spent int               // tells names from those of scripts that failed, which a pooler may have taken
	works bool              // the last script found them as they were
	heard time.Time         // when the last answer had come

	// What messages are made of, again and again: a connection has one user at a time.
	parse    pgproto3.Parse
	bind     pgproto3.Bind
	unparsed []string // texts that the script brings for the first time
}

// maxPrepared bounds the statements of a connection. They are few, and some for each table of the
// caller's whose rows are locked.
const maxPrepared = 256

// newPrepared is nil where pgx is to send everything: the caller has chosen another way to execute
// queries, for a pooler in between, say, or has a tracer, which is to see them.
func newPrepared(conn *pgx.Conn) *prepared {
	config := conn.Config()
	if config.Tracer != nil || config.StatementCacheCapacity == 0 ||
		config.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
		return nil
	}
	return &prepared{names: make(map[string]string)}
}

// serves tells whether the connection is in a state to send and receive by p.
func (p *prepared) serves(conn *pgconn.PgConn) bool {
	return p != nil && len(p.names) < maxPrepared && !conn.IsBusy() && !conn.IsClosed()
}

// recently is how long a connection is not looked at after an answer: a server takes longer to end
// a session, and to tell.
const recently = 50 * time.Microsecond

// isFresh tells whether the server has answered just now.
func (p *prepared) isFresh() bool { return p != nil && time.Since(p.heard) < recently }

// errUnprepared occurs when the server's statements are not those that the connection believes to
// have: somebody has had it forget them, or a pooler has mixed up two clients. The transaction is
// to be begun anew.
var errUnprepared = errors.New("the connection's prepared statements have changed")

// forget forgets the statements, so that they are prepared anew. It returns false when that was
// done before, and has not helped.
func (p *prepared) forget() bool {
	helps := p.works
	clear(p.names)
	p.spent++
	p.works = false
	return helps
}

// send runs a script in one round trip, and returns the first column of each statement's rows.
func (p *prepared) send(ctx context.Context, conn *pgconn.PgConn, s script) ([][]string, error) {
	columns, err := p.exchange(ctx, conn, len(s), func(to *pgproto3.Frontend) { p.write(to, s) })
	if state := sqlState(err); state == unknownStatement || state == knownStatement {
		return columns, fmt.Errorf("%w: %w", errUnprepared, err)
	}
	p.works = true
	return columns, err
}

// exec runs statements without arguments, in one simple query.
func (p *prepared) exec(ctx context.Context, conn *pgconn.PgConn, statements string) error {
	_, err := p.exchange(ctx, conn, 1, func(to *pgproto3.Frontend) {
		to.SendQuery(&pgproto3.Query{String: statements})
	})
	return err
}

// exchange sends what write writes, and reads the answer. When ctx ends, the connection is closed.
func (p *prepared) exchange(ctx context.Context, conn *pgconn.PgConn, statements int,
	write func(to *pgproto3.Frontend),
) (columns [][]string, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	write(conn.Frontend())
	if ctx.Done() == nil {
		return p.flush(conn, statements)
	}
	keepOpen := context.AfterFunc(ctx, func() { _ = conn.Conn().Close() })
	columns, err = p.flush(conn, statements)
	switch {
	case keepOpen():
		return columns, err
	case err != nil:
		return columns, fmt.Errorf("%w: %w", ctx.Err(), err)
	}
	return columns, ctx.Err()
}

func (p *prepared) write(to *pgproto3.Frontend, s script) {
	p.unparsed = p.unparsed[:0]
	for _, statement := range s {
		if statement.sql == dropSnapshotSQL { // it goes with the portal of the statement in front
			to.SendClose(&pgproto3.Close{ObjectType: 'P'})
			continue
		}
		name, known := p.names[statement.sql]
		if !known {
			name = p.nameOf(statement.sql)
			p.unparsed = append(p.unparsed, statement.sql)
			p.parse.Name, p.parse.Query = name, statement.sql
			to.SendParse(&p.parse)
		}
		p.bind.PreparedStatement, p.bind.Parameters = name, p.bind.Parameters[:0]
		for _, arg := range statement.args {
			p.bind.Parameters = append(p.bind.Parameters, []byte(arg))
		}
		to.SendBind(&p.bind)
		to.SendExecute(&pgproto3.Execute{})
	}
	to.SendSync(&pgproto3.Sync{})
}

// nameOf says what the statement is: a pooler that mixes two clients up executes no other text.
func (p *prepared) nameOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "txlock_" + strconv.Itoa(p.spent) + "_" + hex.EncodeToString(sum[:16])
}

// flush sends what was written, and reads the answer. An error of the server leaves the connection
// open, unless it is fatal. Any other closes it.
func (p *prepared) flush(conn *pgconn.PgConn, statements int) (columns [][]string, failed error) {
	if err := conn.Frontend().Flush(); err != nil {
		_ = conn.Close(ended)
		return nil, err
	}
	columns = make([][]string, 0, statements)
	var column []string
	for {
		message, err := conn.ReceiveMessage(context.Background())
		if err != nil {
			_ = conn.Close(ended)
			if inner := errors.Unwrap(err); inner != nil { // pgx claims that this is safe to try again
				err = inner
			}
			return columns, errors.Join(failed, err)
		}
		switch m := message.(type) {
		case *pgproto3.ParseComplete:
			p.names[p.unparsed[0]] = p.nameOf(p.unparsed[0])
			p.unparsed = p.unparsed[1:]
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
			if len(p.unparsed) > 0 {
				p.spent++
			}
			return columns, failed
		}
	}
}
