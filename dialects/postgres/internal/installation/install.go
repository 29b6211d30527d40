// Package installation makes the lock table and those beside it, and finds out whether locks work
// there. It takes no lock of a caller's.
package installation

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/kinds"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Installer does what dialects.Driver promises of the tables.
type Installer struct{ with client.With }

// New returns an Installer, and sends nothing.
func New(with client.With) Installer { return Installer{with} }

// Find does what dialects.Driver promises.
func (i Installer) Find(ctx context.Context, table string) (found dialects.LockTable, err error) {
	err = i.with(ctx, func(q client.Line) error {
		s, err := surveyOf(ctx, q, table, true)
		if err == nil {
			found.Name = s.name
			found.Slots, err = s.Seeded(table)
		}
		if err == nil {
			found.Kinds, err = kinds.Of(found.Name)
		}
		return err
	})
	return found, err
}

// Install does what dialects.Driver promises. It creates and seeds the table in one transaction: a
// crash leaves all of it or nothing. An advisory lock keeps other replicas out, because CREATE
// TABLE IF NOT EXISTS alone fails when two run it at once. A client that falls silent keeps them
// out for the lease at most.
func (i Installer) Install(ctx context.Context, layout dialects.Layout) error {
	t, err := tablesOf(layout.Table)
	if err != nil {
		return err
	}
	installLock := fnv.New64a()
	installLock.Write([]byte("txlock install\x00" + t.locks.name))
	return i.with(ctx, func(q client.Line) (err error) {
		defer func() {
			if err != nil {
				q.Abandon(ctx)
			}
		}()
		if _, err := q.Run(ctx, sqltext.Script{
			client.Begin,
			client.Leased(layout.Lease),
			sqltext.With("select pg_advisory_xact_lock($1)", strconv.FormatInt(int64(installLock.Sum64()), 10)),
		}); err != nil {
			return err
		}
		name, err := seed(ctx, q, layout, t.locks)
		if err == nil {
			err = complete(ctx, q, name)
		}
		if err != nil {
			return err
		}
		clean, cancel := interrupt.Detached(ctx)
		defer cancel()
		return execute(clean, q, client.Commit.SQL)
	})
}

func execute(ctx context.Context, q client.Line, text string) error {
	_, err := q.Run(ctx, sqltext.Script{sqltext.Silent(text)})
	return err
}

// ask asks a question that is answered by yes or no.
func ask(ctx context.Context, q client.Line, question string, args ...string) (yes bool, err error) {
	columns, err := q.Run(ctx, sqltext.Script{sqltext.With("select "+question, args...)})
	return err == nil && server.IsTrue(columns[0][0]), err
}

const isThere = "to_regclass($1) is not null"

// Schema does what dialects.Driver promises.
func (Installer) Schema(layout dialects.Layout) (string, error) {
	t, err := tablesOf(layout.Table)
	statements := []string{t.locks.create(), seedSQL(t.locks.name, layout.Slots)}
	for _, beside := range []table{
		t.epochs, t.runs, t.tokens, t.leaders, t.permits, t.markers, t.markersAge, t.claims, t.claimsEnd,
	} {
		statements = append(statements, beside.create())
	}
	return strings.Join(append(statements, t.completion(), t.claimed()), ";\n\n") + ";\n", err
}

// seed creates the lock table and completes its rows. It returns its full name.
func seed(ctx context.Context, q client.Line, layout dialects.Layout, locks table) (name string, err error) {
	exists, err := ask(ctx, q, isThere, locks.name)
	if err != nil {
		return "", err
	}
	if !exists {
		if err := execute(ctx, q, locks.create()); err != nil {
			return "", fmt.Errorf("create table: %w", err)
		}
	}
	found, err := surveyOf(ctx, q, layout.Table, false)
	if err != nil {
		return "", err
	}
	wanted, err := found.Wanted(layout.Table, layout.Slots)
	if err != nil {
		return "", err
	}
	if _, err := found.Seeded(layout.Table); err == nil {
		return found.name, nil
	}
	if err := execute(ctx, q, seedSQL(locks.name, wanted)); err != nil {
		return "", fmt.Errorf("seed table: %w", err)
	}
	_, err = slotsOf(ctx, q, layout.Table)
	return found.name, err
}

// complete creates what stands beside the lock table, as far as it is missing, in its schema.
func complete(ctx context.Context, q client.Line, locks string) error {
	t, err := tablesOf(locks)
	if err != nil {
		return err
	}
	lacking := []table{t.epochs, t.runs, t.tokens, t.leaders, t.permits}
	for _, indexed := range [][]table{{t.markers, t.markersAge}, {t.claims, t.claimsEnd}} {
		exists, err := ask(ctx, q, isThere, indexed[0].name)
		if err != nil {
			return err
		}
		if !exists {
			lacking = append(lacking, indexed...)
		}
	}
	for _, beside := range lacking {
		if err := execute(ctx, q, beside.create()); err != nil {
			return err
		}
	}
	for _, beside := range []table{t.leaders, t.permits} {
		_, err := q.Run(ctx, sqltext.Script{{SQL: "select hash from " + beside.name + " limit 0"}})
		if server.State(err) == server.UndefinedColumn {
			return locktable.Older(beside.name, err)
		}
		if err != nil {
			return err
		}
	}
	fenced, err := t.fenced(ctx, q)
	if err == nil && !fenced {
		err = execute(ctx, q, t.completion())
	}
	if err != nil {
		return err
	}
	counts, err := ask(ctx, q, "exists (select from "+t.claims.name+" where claim = "+noClaim+")")
	if err == nil && !counts {
		err = execute(ctx, q, t.claimed())
	}
	return err
}

// fenced tells whether all that tokens are drawn from is there, in the shape that it has here.
func (t tables) fenced(ctx context.Context, q client.Line) (bool, error) {
	return ask(ctx, q, "to_regclass($2) is not null and to_regclass($3) is not null and exists (select from "+
		"pg_attribute where attrelid = to_regclass($1)::oid and attname = 'server')", t.epochs.name, t.runs.name,
		t.tokens.name)
}

// ExplainFence is missing, the server's error, unless the table that it did not find is one that
// tokens are drawn from.
func ExplainFence(ctx context.Context, q client.Line, table string, missing error) error {
	t, err := tablesOf(table)
	if err != nil {
		return err
	}
	if fenced, err := t.fenced(ctx, q); err != nil || fenced {
		return missing
	}
	return locktable.NoFence(table, server.Said(missing))
}

// seedSQL inserts the slots that are missing.
func seedSQL(table string, slots int) string {
	return fmt.Sprintf("INSERT INTO %s (slot, slots)\nSELECT slot, %d FROM generate_series(0, %[2]d - 1) AS slot\n"+
		"ON CONFLICT DO NOTHING", table, slots)
}

func slotsOf(ctx context.Context, q client.Line, table string) (int, error) {
	s, err := surveyOf(ctx, q, table, false)
	if err != nil {
		return 0, err
	}
	return s.Seeded(table)
}

// survey is what a lock table says of itself, and its name with its schema.
type survey struct {
	locktable.Census
	name string
}

// surveyOf asks by all rows, or by those at the edges.
func surveyOf(ctx context.Context, q client.Line, table string, edges bool) (s survey, err error) {
	quoted, err := sqltext.QuoteTable(table)
	if err != nil {
		return s, err
	}
	columns, err := q.Run(ctx, sqltext.Script{
		{SQL: locktable.CensusSQL(quoted, edges)},
		sqltext.With("select format('%I.%I', nspname, relname) from pg_class c join pg_namespace n "+
			"on n.oid = relnamespace where c.oid = $1::regclass::oid", quoted),
	})
	if err != nil {
		return s, server.Ours(err, table)
	}
	s.name = strings.Join(columns[1], "")
	s.Census, err = locktable.CensusOf(table, columns[0])
	return s, err
}
