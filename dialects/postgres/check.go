package postgres

import (
	"context"
	"strconv"

	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/internal/exclusion"
	"github.com/txlock/txlock/dialects/internal/interrupt"
)

// Check implements dialects.Driver. It proves exclusion on two connections.
func (d *driver[Tx]) Check(ctx context.Context, table string) error {
	return d.withConn(ctx, func(holder querier) error {
		slots, err := holder.slots(ctx, table)
		if err != nil {
			return err
		}
		quoted, err := quoteTable(table)
		if err != nil {
			return err
		}
		second, cancel := context.WithTimeout(ctx, interrupt.CleanUp)
		defer cancel()
		return d.withConn(second, func(rival querier) error {
			first := &checkConn{querier: holder, table: quoted, spelled: table}
			return exclusion.Prove(second, slots, first,
				&checkConn{querier: rival, table: quoted, spelled: table})
		})
	})
}

// checkConn is a connection of Check.
type checkConn struct {
	querier
	table string // quoted
	// spelled is the table as its user spells it.
	spelled string
	begun   bool
}

// TryLock implements exclusion.Conn.
func (c *checkConn) TryLock(ctx context.Context, slot int, clause string) (int, bool, error) {
	c.begun = true
	columns, err := c.run(ctx, script{
		{sql: beginSQL},
		{"select slot from " + c.table + " where slot = $1 for update " + clause, []string{strconv.Itoa(slot)}},
	})
	if sqlState(err) == lockNotAvailable {
		return 0, true, nil
	}
	if state := sqlState(err); err != nil && (state == "" || state == noPrivilege) {
		return 0, false, exclusion.NoVerdict(err)
	}
	if err != nil {
		return 0, false, err
	}
	return len(columns[1]), false, nil
}

// TryShare implements exclusion.Conn. Beside a shared lock an exclusive one is kept out by the
// turnstile, before it comes to the row.
func (c *checkConn) TryShare(ctx context.Context, slot int, alone bool) (granted bool, err error) {
	request := dialects.Request{Table: c.spelled, Ours: true, Shared: !alone}
	c.begun = true
	columns, err := c.run(ctx, script{
		{sql: beginSQL},
		{"select " + passSQL(request, form(request, trying), "$1") + "::text", []string{strconv.Itoa(slot)}},
	})
	if state := sqlState(err); err != nil && (state == "" || state == noPrivilege) {
		err = exclusion.NoVerdict(err)
	}
	return err == nil && isTrue(columns[1][0]), err
}

// Rollback implements exclusion.Conn.
func (c *checkConn) Rollback(ctx context.Context) error {
	if !c.begun {
		return nil
	}
	c.begun = false
	_, err := c.run(ctx, script{{sql: "rollback"}})
	return err
}
