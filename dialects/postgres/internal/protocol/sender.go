// Package protocol sends scripts on a connection of pgx's in messages of the protocol, past pgx. So
// the first lock on a connection takes no trip more than any other, nobody describes results that
// nobody needs, and the end of a snapshot costs a message instead of a statement.
//
// pgx's own calls keep others off the connection from the first message to the last. Here it is the
// session's user alone who does: work that has left a goroutine behind, which goes on to use the
// transaction, gets an error from one of the two.
package protocol

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// Sender is for whoever has the connection alone.
//
// Where a script can be undone, it keeps the statements on the server, under names. The server may
// not have them as they were: the caller has had it forget them (DISCARD ALL), a column has another
// type, a pooler has mixed up two clients. That is an error, which ends the transaction. So all but
// the first statement is undone, and sent again without names.
type Sender struct {
	conn       *pgx.Conn
	names      map[string]string   // by text
	outdated   []string            // names that are not used any more, and that the server is to forget
	generation int                 // is part of new names: a pooler may have one that the server has not
	forgotten  int                 // how often the server has not had what it should
	types      map[string][]uint32 // of the arguments of the caller's statements, by text; see Fly

	// What messages are made of, again and again.
	parse    pgproto3.Parse
	bind     pgproto3.Bind
	values   [][]byte
	fresh    []string // texts that the last script has brought for the first time; empty: one without a name
	prepared int      // how many of them the server has confirmed
}

const (
	// maxPrepared bounds the statements of a connection. Few are for the lock table, and two for
	// each table of the caller's whose rows are locked. When there are more, all are prepared anew.
	maxPrepared = 256
	// maxForgotten is how often the server may have forgotten statements before it keeps none.
	maxForgotten = 16
)

// Of is nil where pgx is to send everything: the caller has chosen another way to execute queries,
// for a pooler in between, say, or has a tracer, which is to see them. To turn this package off,
// return nil always.
func Of(conn *pgx.Conn) *Sender {
	config := conn.Config()
	if config.Tracer != nil || config.StatementCacheCapacity == 0 ||
		config.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
		return nil
	}
	return &Sender{conn: conn, names: make(map[string]string), types: make(map[string][]uint32)}
}

// Serves tells whether the connection is in a state to send and receive.
func (s *Sender) Serves() bool { return s != nil && !s.conn.PgConn().IsBusy() && !s.conn.IsClosed() }

// Run runs a script in one round trip, and returns the first column of each statement's rows. When
// ctx ends, the connection is closed.
//
// Undo is a statement that undoes all but the first one of the script, which is that to begin a
// transaction or to set a savepoint. It is empty where nothing does. Safe, unless it is nil, is
// called when the first statement has run, while the server goes on.
func (s *Sender) Run(ctx context.Context, script sqltext.Script, undo string, safe func()) ([][]string, error) {
	f := flight{Script: script, kept: undo != "" && s.keeps(), safe: safe}
	columns, err := s.send(ctx, f)
	if err == nil || !f.kept || !s.isOutdated(script, len(columns), err) || s.conn.IsClosed() {
		return columns, err
	}
	if undone := s.Exec(ctx, undo); undone != nil {
		return columns, errors.Join(undone, err)
	}
	further, err := s.send(ctx, flight{Script: script[1:]})
	return append([][]string{nil}, further...), err
}

// isOutdated tells whether a script may have failed for what one of its statements was when it was
// prepared. Then it is prepared anew.
func (s *Sender) isOutdated(script sqltext.Script, failed int, err error) bool {
	switch state := server.State(err); {
	case failed == len(script) || !mayBeOutdated(err):
		return false
	case state == server.UnknownStatement, state == server.KnownStatement:
		s.forgotten++
		clear(s.names)
	case slices.Contains(s.fresh, script[failed].SQL):
		return false
	default:
		s.drop(script[failed].SQL)
	}
	s.generation++
	return true
}

// drop has a statement prepared anew. The server, which has it, is to forget it.
func (s *Sender) drop(text string) {
	if name, known := s.names[text]; known {
		s.outdated = append(s.outdated, name)
		delete(s.names, text)
	}
}

// mayBeOutdated tells whether an error of the server may come from what a statement was when it was
// prepared, or from types that have changed, or are gone. A verdict of ours does not.
func mayBeOutdated(err error) bool {
	const data, internal = "22", "XX" // classes
	state := server.State(err)
	if state == server.NotSupported { // which alone may mean something else
		var pg *pgconn.PgError
		return errors.As(err, &pg) && pg.Routine == "RevalidateCachedQuery"
	}
	return state == server.UnknownStatement || strings.HasPrefix(state, server.BadText) ||
		strings.HasPrefix(state, internal) ||
		strings.HasPrefix(state, data) && !strings.Contains(err.Error(), `"txlock: `)
}

// Exec runs statements without arguments, in one simple query.
func (s *Sender) Exec(ctx context.Context, statements string) error {
	_, err := s.exchange(ctx, nil, func(to *pgproto3.Frontend) { to.SendQuery(&pgproto3.Query{String: statements}) })
	return err
}

// Prepare has the server keep the statement that is the proof of Commit. It takes a round trip at
// first, and when the server has forgotten it: pgx knows when the caller has called DeallocateAll.
func (s *Sender) Prepare(ctx context.Context, proof sqltext.Statement) (name string, err error) {
	if !s.keeps() {
		return "", nil
	}
	name = "txlock_proof_" + strconv.Itoa(s.forgotten)
	_, err = s.conn.Prepare(ctx, name, proof.Sent())
	return name, err
}

// Commit runs proof, and then commits.
func (s *Sender) Commit(ctx context.Context, proof sqltext.Statement) error {
	name, err := s.Prepare(ctx, proof)
	if err == nil {
		_, err = s.exchange(ctx, nil, func(to *pgproto3.Frontend) {
			s.write(to, name, proof, arguments{values: proof.AppendTexts(nil)})
			s.write(to, "", sqltext.Silent("commit"), arguments{})
			to.SendSync(&pgproto3.Sync{})
		})
	}
	if state := server.State(err); state == server.UnknownStatement || state == server.KnownStatement {
		err = server.MixedUp(err)
	}
	return err
}

// keeps tells whether the server keeps statements.
func (s *Sender) keeps() bool { return s.forgotten < maxForgotten }

// flight is a script, and how it travels.
type flight struct {
	sqltext.Script
	args []arguments // of each statement; nil: they are in the script
	kept bool        // on the server
	safe func()
}

// arguments are those of a statement, as the protocol takes them.
type arguments struct {
	values  [][]byte
	types   []uint32 // nil: the server finds out
	formats []int16  // nil: text
	asked   bool     // the statement is not to run: the server tells types
}

func (s *Sender) send(ctx context.Context, f flight) (columns [][]string, err error) {
	results := 0
	columns, err = s.exchange(ctx, &f, func(to *pgproto3.Frontend) { results = s.writeAll(to, f) })
	if s.prepared < len(s.fresh) { // a pooler may know them all the same
		s.generation++
	}
	if err == nil && len(columns) != results {
		_ = s.conn.Close(over)
		err = fmt.Errorf("the server has answered %d of %d statements", len(columns), results)
	}
	return columns, err
}

// writeAll returns how many results will come.
func (s *Sender) writeAll(to *pgproto3.Frontend, f flight) (results int) {
	if len(s.names)+len(f.Script) > maxPrepared {
		for text := range s.names {
			s.drop(text)
		}
		s.generation++
	}
	for _, name := range s.outdated {
		to.SendClose(&pgproto3.Close{ObjectType: 'S', Name: name})
	}
	s.outdated = s.outdated[:0]
	for i, statement := range f.Script {
		if statement.Idles { // the snapshot goes with the portal of the statement before
			to.SendClose(&pgproto3.Close{ObjectType: 'P'})
			continue
		}
		args, name := arguments{}, ""
		if f.args != nil {
			args = f.args[i]
		} else {
			s.values = statement.AppendTexts(s.values[:0])
			args.values = s.values
		}
		if f.kept && (i > 0 || f.safe == nil) { // without the savepoint, nothing can be undone
			name = s.keep(to, statement)
		}
		s.write(to, name, statement, args)
		if results++; i == 0 && f.safe != nil {
			to.Send(&pgproto3.Flush{})
		}
	}
	to.SendSync(&pgproto3.Sync{})
	return results
}

// keep prepares a statement unless the server has it, and returns its name.
func (s *Sender) keep(to *pgproto3.Frontend, statement sqltext.Statement) (name string) {
	text := statement.SQL
	if name, known := s.names[text]; known {
		return name
	}
	name = s.nameOf(text)
	if !slices.Contains(s.fresh, text) {
		s.fresh = append(s.fresh, text)
		s.parse = pgproto3.Parse{Name: name, Query: statement.Sent()}
		to.SendParse(&s.parse)
	}
	return name
}

// nameOf says what the statement is: a pooler that mixes up two clients executes no other text.
func (s *Sender) nameOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "txlock_" + strconv.Itoa(s.generation) + "_" + hex.EncodeToString(sum[:16])
}

func (s *Sender) write(to *pgproto3.Frontend, name string, statement sqltext.Statement, args arguments) {
	if name == "" {
		s.fresh = append(s.fresh, "")
		s.parse = pgproto3.Parse{Query: statement.Sent(), ParameterOIDs: args.types}
		to.SendParse(&s.parse)
	}
	if args.asked {
		to.SendDescribe(&pgproto3.Describe{ObjectType: 'S'})
		return
	}
	s.bind = pgproto3.Bind{PreparedStatement: name, Parameters: args.values, ParameterFormatCodes: args.formats}
	to.SendBind(&s.bind)
	to.SendExecute(&pgproto3.Execute{})
}

// exchange sends what write writes, and reads the answer. With a flight it notes what the server
// says of its statements.
func (s *Sender) exchange(ctx context.Context, f *flight, write func(*pgproto3.Frontend)) (
	columns [][]string, err error,
) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	s.fresh, s.prepared = s.fresh[:0], 0
	write(s.conn.PgConn().Frontend())
	if ctx.Done() == nil {
		return s.flush(f)
	}
	keepOpen := context.AfterFunc(ctx, func() { _ = s.conn.PgConn().Conn().Close() })
	columns, err = s.flush(f)
	if keepOpen() {
		return columns, err
	}
	_ = s.conn.Close(over) // so that it is known to be closed
	if err == nil {
		return columns, ctx.Err()
	}
	return columns, fmt.Errorf("%w: %w", ctx.Err(), err)
}

// over is a context that has ended.
var over, _ = context.WithDeadline(context.Background(), time.Time{})

// flush sends what was written, and reads the answer. An error of the server leaves the connection
// open, unless pgx closes it for that error. Any other closes it.
func (s *Sender) flush(f *flight) (columns [][]string, failed error) {
	conn := s.conn.PgConn()
	if err := conn.Frontend().Flush(); err != nil {
		_ = s.conn.Close(over)
		return nil, err
	}
	columns = make([][]string, 0, 3)
	var column []string
	for {
		message, err := conn.ReceiveMessage(context.Background())
		if err != nil {
			_ = s.conn.Close(over)
			return columns, errors.Join(failed, unanswered{err})
		}
		switch m := message.(type) {
		case *pgproto3.ParseComplete:
			if text := s.fresh[s.prepared]; text != "" {
				s.names[text] = s.nameOf(text)
			}
			s.prepared++
		case *pgproto3.ParameterDescription:
			f.args[len(columns)].types = slices.Clone(m.ParameterOIDs)
		case *pgproto3.RowDescription, *pgproto3.NoData:
			if f != nil { // who asks for types is told this last; others do not ask
				columns = append(columns, nil)
			}
		case *pgproto3.DataRow:
			if len(m.Values) > 0 {
				column = append(column, string(m.Values[0]))
			}
		case *pgproto3.CommandComplete, *pgproto3.EmptyQueryResponse:
			if columns, column = append(columns, column), nil; f != nil && f.safe != nil {
				f.safe()
			}
		case *pgproto3.ErrorResponse:
			failed = pgconn.ErrorResponseToPgError(m)
		case *pgproto3.ReadyForQuery:
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
