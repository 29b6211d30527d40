package protocol

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// errLeft is for statements that pgx alone may send. Nothing was sent.
var errLeft = errors.New("an argument rewrites the text, or is too large to travel with others")

// maxBytes bounds the arguments of a script: while they are written, nobody reads what the server
// says.
const maxBytes = 1 << 16

// Fly is Run for a script that begins with a savepoint, and has statements of the caller's. They
// must fail behind the savepoint. pgx would prepare one that it does not know ahead of all. So it
// is sent like the library's own, with its arguments as pgx encodes them. For their types the
// server is asked once, behind the lock, which takes a trip more: to read a statement, it locks the
// tables in it, which the lock's holder may want next. When they have changed since, the statement
// may fail once, as one of pgx's own does that was prepared before.
//
// A statement that the server does not know, or whose arguments do not fit it, is refused when all
// in front of the caller's has run: see [sqltext.RefusedError].
func (s *Sender) Fly(ctx context.Context, script sqltext.Script, safe func()) (columns [][]string, err error) {
	if len(s.types) > maxPrepared {
		clear(s.types)
	}
	if slices.ContainsFunc(script, mustBeLeft) {
		return nil, errLeft
	}
	args, unknown, _ := s.encode(script)
	if len(unknown) > 0 {
		first := script.FirstWork()
		if columns, err = s.ask(ctx, script[:first], args[:first], unknown, safe); err != nil {
			return columns, err
		}
		script = script[first:]
		if args, unknown, err = s.encode(script); len(unknown) > 0 {
			return columns, sqltext.RefusedError{Work: unknown[0].Work, Err: err}
		}
	}
	further, err := s.send(ctx, flight{Script: script, args: args, safe: safe})
	if mayBeOutdated(err) {
		for _, statement := range script {
			delete(s.types, statement.SQL)
		}
	}
	return append(columns, further...), err
}

func mustBeLeft(statement sqltext.Statement) bool {
	bytes := 0
	for _, arg := range statement.Values() {
		switch a := arg.(type) {
		case pgx.QueryRewriter:
			return true
		case string:
			bytes += len(a)
		case []byte:
			bytes += len(a)
		}
	}
	return bytes > maxBytes
}

// encode returns the arguments of statements, and those statements whose types are not known, or
// whose arguments do not fit them any more, with the reason.
func (s *Sender) encode(script sqltext.Script) (args []arguments, unknown sqltext.Script, why error) {
	args = make([]arguments, len(script))
	for i, statement := range script {
		if statement.Work == nil {
			args[i].values = statement.AppendTexts(nil)
			continue
		}
		types, known := s.types[statement.SQL]
		known = known || len(statement.Work.Args) == 0
		var b pgx.ExtendedQueryBuilder
		description := pgconn.StatementDescription{ParamOIDs: types}
		if err := b.Build(s.conn.TypeMap(), &description, statement.Work.Args); err != nil || !known {
			unknown, why = append(unknown, statement), cmp.Or(why, err)
		}
		args[i] = arguments{values: b.ParamValues, types: types, formats: b.ParamFormats}
	}
	return args, unknown, why
}

// ask runs what is in front, and asks for the types of unknown statements of the caller's.
func (s *Sender) ask(ctx context.Context, front sqltext.Script, args []arguments, unknown sqltext.Script,
	safe func(),
) (columns [][]string, err error) {
	script, first := slices.Concat(front, unknown), len(front)
	args = slices.Concat(args, slices.Repeat([]arguments{{asked: true}}, len(unknown)))
	columns, err = s.send(ctx, flight{Script: script, args: args, safe: safe})
	for i := first; i < len(columns); i++ {
		s.types[script[i].SQL] = args[i].types
	}
	if at := len(columns); err != nil && at >= first && at < len(script) {
		err = sqltext.RefusedError{Work: script[at].Work, Err: err}
	}
	return columns[:min(first, len(columns))], err
}
