package client

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
)

// described are the types of the arguments of the caller's statements, by their text, as the server
// has told them to a connection.
//
// A statement of the caller's that travels with a savepoint in front must fail behind it. pgx would
// prepare one that it does not know ahead of all. So it is sent past pgx, as the library's own are,
// with its arguments as pgx encodes them. For their types the server is asked once, behind the
// lock: to read a statement, it locks the tables in it, which the lock's holder may want next. When
// they have changed since, the statement may fail once, as one of pgx's own does that was prepared
// before.
type described map[string][]uint32

var errRewritten = errors.New("an argument rewrites the text, which pgx alone does")

// fly is sendUnnamed for a script with statements of the caller's. It takes two trips when the
// server has to tell types. A statement that the server does not know, or whose arguments do not
// fit it, is refused when all in front of the caller's has run.
func (d described) fly(ctx context.Context, conn *pgx.Conn, s sqltext.Script, safe func()) (
	columns [][]string, err error,
) {
	if len(d) > maxPrepared {
		clear(d)
	}
	var ask sqltext.Script
	sent := make([]arguments, len(s))
	for i, statement := range s {
		if work := statement.Work; work != nil && len(work.Args) > 0 {
			if _, rewrites := work.Args[0].(pgx.QueryRewriter); rewrites {
				return nil, errRewritten
			}
		}
		if sent[i], err = d.encode(conn, statement); err != nil { // its types may have changed
			ask = append(ask, statement)
		}
	}
	if len(ask) > 0 {
		first := s.FirstWork()
		if columns, err = d.describe(ctx, conn.PgConn(), s[:first], sent[:first], ask, safe); err != nil {
			return columns, err
		}
		s, sent = s[first:], sent[first:]
		for i, statement := range s {
			if sent[i], err = d.encode(conn, statement); err != nil {
				return columns, refused{statement.Work, err}
			}
		}
	}
	further, err := sendWith(ctx, conn.PgConn(), s, sent, safe)
	if mayBeOutdated(err) {
		for _, statement := range s {
			delete(d, statement.SQL)
		}
	}
	return append(columns, further...), err
}

// mayBeOutdated tells whether an error of the server may come from types that have changed, or are
// gone. A verdict of ours does not.
func mayBeOutdated(err error) bool {
	const data, internal = "22", "XX" // classes
	state := server.State(err)
	return strings.HasPrefix(state, server.BadText) || strings.HasPrefix(state, internal) ||
		strings.HasPrefix(state, data) && !strings.Contains(err.Error(), `"txlock: `)
}

// describe runs what is in front, and asks for the types of the statements of the caller's.
func (d described) describe(ctx context.Context, conn *pgconn.PgConn, front sqltext.Script, sent []arguments,
	ask sqltext.Script, safe func(),
) (columns [][]string, err error) {
	s := slices.Concat(front, ask)
	sent = slices.Concat(sent, make([]arguments, len(ask)))
	first := len(front)
	for i := range ask {
		sent[first+i].asked = true
	}
	columns, err = sendWith(ctx, conn, s, sent, safe)
	for i := first; i < len(columns); i++ {
		d[s[i].SQL] = sent[i].types
	}
	if at := len(columns); err != nil && at >= first && at < len(s) {
		err = refused{s[at].Work, err}
	}
	return columns[:min(first, len(columns))], err
}

func (d described) encode(conn *pgx.Conn, s sqltext.Statement) (arguments, error) {
	if s.Work == nil {
		return arguments{values: s.Texts()}, nil
	}
	types, known := d[s.SQL]
	if !known {
		return arguments{}, errors.New("its types are not known")
	}
	var b pgx.ExtendedQueryBuilder
	err := b.Build(conn.TypeMap(), &pgconn.StatementDescription{ParamOIDs: types}, s.Work.Args)
	return arguments{values: b.ParamValues, types: types, formats: b.ParamFormats}, err
}
