package postgres

import (
	"context"
	"fmt"
	"hash/fnv"
	"strconv"
	"strings"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/interrupt"
	"github.com/txlock/txlock/dialects/postgres/internal/client"
	"github.com/txlock/txlock/dialects/postgres/internal/server"
	"github.com/txlock/txlock/dialects/postgres/internal/sqltext"
	"github.com/txlock/txlock/internal/locktable"
)

// Find implements dialects.Driver. The same trip asks who the server is.
func (d *driver[Tx]) Find(ctx context.Context, table string) (found dialects.LockTable, err error) {
	conn, q, err := d.acquire(ctx)
	if err != nil {
		return found, err
	}
	defer conn.GiveBack()
	s, err := q.survey(ctx, table, edgesSQL)
	if err == nil {
		err = d.identifiedBy(s.extensions)
	}
	if err != nil {
		return found, err
	}
	found.Name = s.name
	found.Slots, err = s.Seeded(table)
	return found, err
}

// Install implements dialects.Driver. It creates and seeds the table in one transaction: a crash
// leaves all of it or nothing. An advisory lock keeps other replicas out, because CREATE TABLE IF
// NOT EXISTS alone fails when two run it at once. A client that falls silent keeps them out for the
// lease at most.
func (d *driver[Tx]) Install(ctx context.Context, layout dialects.Layout) error {
	quoted, err := sqltext.QuoteTable(layout.Table)
	if err != nil {
		return err
	}
	installLock := fnv.New64a()
	installLock.Write([]byte("txlock install\x00" + quoted))
	return d.withConn(ctx, func(q querier) (err error) {
		defer func() {
			if err != nil {
				q.abandon(ctx)
			}
		}()
		if _, err := q.Run(ctx, sqltext.Script{
			client.Begin,
			leaseStatement(layout.Lease),
			sqltext.With("select pg_advisory_xact_lock($1)", strconv.FormatInt(int64(installLock.Sum64()), 10)),
		}); err != nil {
			return err
		}
		name, err := q.seed(ctx, layout.Table, quoted, layout.Slots)
		if err != nil {
			return err
		}
		if err = q.create(ctx, name); err != nil {
			return err
		}
		clean, cancel := interrupt.Detached(ctx)
		defer cancel()
		_, err = q.Run(clean, sqltext.Script{client.Commit})
		return err
	})
}

// Schema implements dialects.Driver.
func (d *driver[Tx]) Schema(layout dialects.Layout) (string, error) {
	quoted, err := sqltext.QuoteTable(layout.Table)
	if err != nil {
		return "", err
	}
	beside, err := schemaBeside(layout.Table)
	if err != nil {
		return "", err
	}
	_, markers, err := markersSchema(layout.Table)
	if err != nil {
		return "", err
	}
	f, err := fenceOf(layout.Table)
	beside = append(append(beside, markers...), f.completion())
	create, seed := schema(quoted, layout.Slots)
	return strings.Join(append([]string{create, seed}, beside...), ";\n\n") + ";\n", err
}

// seed creates the lock table and completes its rows. It returns its full name.
func (q querier) seed(ctx context.Context, table, quoted string, slots int) (name string, err error) {
	create, _ := schema(quoted, slots)
	exists, err := q.Run(ctx, sqltext.Script{sqltext.With("select to_regclass($1) is not null", quoted)})
	if err != nil {
		return "", err
	}
	if !isTrue(exists[0][0]) {
		if _, err := q.Run(ctx, sqltext.Script{sqltext.Silent(create)}); err != nil {
			return "", fmt.Errorf("create table: %w", err)
		}
	}
	found, err := q.survey(ctx, table, censusSQL)
	if err != nil {
		return "", err
	}
	wanted, err := found.Wanted(table, slots)
	if err != nil {
		return "", err
	}
	if _, err := found.Seeded(table); err == nil {
		return found.name, nil
	}
	_, seed := schema(quoted, wanted)
	if _, err := q.Run(ctx, sqltext.Script{sqltext.Silent(seed)}); err != nil {
		return "", fmt.Errorf("seed table: %w", err)
	}
	_, err = q.slots(ctx, table)
	return found.name, err
}

// create creates what stands beside the lock table, as far as it is missing, in its schema.
func (q querier) create(ctx context.Context, table string) error {
	beside, err := schemaBeside(table)
	if err != nil {
		return err
	}
	markers, schema, err := markersSchema(table)
	if err != nil {
		return err
	}
	exists, err := q.Run(ctx, sqltext.Script{sqltext.With("select to_regclass($1) is not null", markers)})
	if err != nil {
		return err
	}
	if !isTrue(exists[0][0]) {
		beside = append(beside, schema...)
	}
	for _, text := range beside {
		if _, err := q.Run(ctx, sqltext.Script{sqltext.Silent(text)}); err != nil {
			return err
		}
	}
	if err := q.refuseOlder(ctx, table); err != nil {
		return err
	}
	f, err := fenceOf(table)
	if err != nil {
		return err
	}
	complete, err := q.Run(ctx, sqltext.Script{f.isComplete()})
	if err == nil && !isTrue(complete[0][0]) {
		_, err = q.Run(ctx, sqltext.Script{sqltext.Silent(f.completion())})
	}
	return err
}

func (q querier) refuseOlder(ctx context.Context, table string) error {
	beside, err := sqltext.Beside(table)
	for _, name := range []string{beside("_leaders"), beside("_permits")} {
		if err == nil {
			_, err = q.Run(ctx, sqltext.Script{{SQL: "select hash from " + name + " limit 0"}})
		}
		if server.State(err) == server.UndefinedColumn {
			return locktable.Older(name, err)
		}
	}
	return err
}

// schemaBeside creates what stands beside the lock table: the fence, leaders, permits. The markers
// are apart: see markersSchema.
func schemaBeside(table string) ([]string, error) {
	f, err := fenceOf(table)
	if err != nil {
		return nil, err
	}
	leaders, err := sqltext.LeadersOf(table)
	if err != nil {
		return nil, err
	}
	permits, err := sqltext.PermitsOf(table)
	return append(f.schema(), leadersSchema(leaders), permitsSchema(permits)), err
}

// schema is the SQL text that creates and seeds a lock table. The primary key is unnamed: the
// server finds a free name. Every row states the number of slots: missing rows show, and a client
// with an old number finds no row to lock instead of a wrong one. Slots is 0 when only create is
// used.
func schema(table string, slots int) (create, seed string) {
	create = "CREATE TABLE IF NOT EXISTS " + table + " (\n" +
		"    slot integer NOT NULL PRIMARY KEY,\n" +
		"    slots integer NOT NULL,\n" +
		"    CHECK (slot >= 0 AND slot < slots)\n)"
	seed = fmt.Sprintf("INSERT INTO %s (slot, slots)\nSELECT slot, %d FROM generate_series(0, %[2]d - 1) AS slot\n"+
		"ON CONFLICT DO NOTHING", table, slots)
	return create, seed
}

func (q querier) slots(ctx context.Context, table string) (int, error) {
	s, err := q.survey(ctx, table, censusSQL)
	if err != nil {
		return 0, err
	}
	return s.Seeded(table)
}

// censusSQL counts the slots of a quoted table.
func censusSQL(quoted string) string {
	return "select concat_ws(' ', count(*), coalesce(min(slot), 0), coalesce(max(slot), 0), " +
		"coalesce(min(slots), 0), coalesce(max(slots), 0)) from " + quoted
}

// edgesSQL looks at the first slot and the last one alone: a lock fails if its own is missing.
func edgesSQL(quoted string) string {
	edge := "(select slot, slots from " + quoted + " order by slot"
	return "select concat_ws(' ', z.slot - a.slot + 1, a.slot, z.slot, least(a.slots, z.slots), " +
		"greatest(a.slots, z.slots)) from " + edge + " limit 1) a, " + edge + " desc limit 1) z"
}

// survey is what a lock table says of itself, its name with its schema, and who the server is.
type survey struct {
	locktable.Census
	name       string
	extensions []string // as identity asks for them
}

// survey asks with the SQL that census returns. An empty table may give no row.
func (q querier) survey(ctx context.Context, table string, census func(quoted string) string) (s survey, err error) {
	quoted, err := sqltext.QuoteTable(table)
	if err != nil {
		return s, err
	}
	columns, err := q.Run(ctx, sqltext.Script{
		identity,
		{SQL: census(quoted)},
		sqltext.With("select format('%I.%I', nspname, relname) from pg_class c join pg_namespace n "+
			"on n.oid = relnamespace where c.oid = $1::regclass", quoted),
	})
	if err != nil {
		return s, classify(err, dialects.Request{Table: table, Slots: 1})
	}
	if answer := strings.Join(columns[1], ""); answer != "" {
		if _, err = fmt.Sscan(answer, &s.Rows, &s.MinSlot, &s.MaxSlot, &s.MinSlots, &s.MaxSlots); err != nil {
			return s, locktable.NotInstalled(table, err)
		}
	}
	s.extensions, s.name = columns[0], strings.Join(columns[2], "")
	return s, nil
}
