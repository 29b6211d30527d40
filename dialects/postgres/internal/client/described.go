package client

import (
	"context"
	"errors"
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
// savepoint. When they have changed since, the statement may fail once, as one of pgx's own does
// that was prepared before.
type described map[string][]uint32

var errRewritten = errors.New("an argument rewrites the text, which pgx alone does")

// fly is sendUnnamed for a script with statements of the caller's. It takes two trips when the
// server has to tell types. A statement that the server does not know, or whose arguments do not
// fit it, is refused.
func (d described) fly(ctx context.Context, conn *pgx.Conn, s sqltext.Script, safe func()) (
	columns [][]string, err error,
) {
	if len(d) > maxPrepared {
		clear(d)
	}
	ask, sent := s[:1:1], make([]arguments, len(s))
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
	if len(ask) > 1 {
		if columns, err = d.describe(ctx, conn.PgConn(), ask, safe); err != nil {
			return columns, err
		}
		s, sent = s[1:], sent[1:]
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

// mayBeOutdated tells whether an error of the server may come from types that have changed. A
// verdict of ours does not.
func mayBeOutdated(err error) bool {
	const data = "22" // a class
	state := server.State(err)
	return strings.HasPrefix(state, server.BadText) || strings.HasPrefix(state, data) &&
		!strings.Contains(err.Error(), `"txlock: `)
}

// describe runs the first statement, and asks for the types of those behind it.
func (d described) describe(ctx context.Context, conn *pgconn.PgConn, s sqltext.Script, safe func()) (
	columns [][]string, err error,
) {
	sent := make([]arguments, len(s))
	for i := range s {
		sent[i].asked = i > 0
	}
	columns, err = sendWith(ctx, conn, s, sent, safe)
	for i := 1; i < len(columns); i++ {
		d[s[i].SQL] = sent[i].types
	}
	if at := len(columns); err != nil && at > 0 && at < len(s) {
		err = refused{s[at].Work, err}
	}
	return columns[:min(1, len(columns))], err
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
