package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/txlock/txlock/cmd/txlock/internal/doctor"
	"github.com/txlock/txlock/cmd/txlock/internal/dsn"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/internal/identifier"
)

const slotHelp = `Prints the slot of each KEY, and below it the statements with which a program in any language
takes the same lock: docs/protocol.md says what else it must look at. It asks no server. --slots
is the number with which the table was installed.`

func newSlot(o *options) *cobra.Command {
	var l layout
	var system string
	var number bool
	c := newCommand("slot [flags] KEY...", "Print the slot of a key, and the SQL that locks it", slotHelp,
		"  txlock slot --system postgres sku:42\n  txlock slot --number sku:42 sku:43",
		func(c *cobra.Command, keys []string) error {
			if err := l.check(c); err != nil {
				return err
			}
			text, err := o.slots(keys, cmp.Or(l.slots, dialects.DefaultSlots), system, number)
			if err != nil {
				return err
			}
			return o.print(c, "%s", text)
		})
	systemFlag(c, &system)
	c.Flags().BoolVar(&number, "number", false, "the slots alone, a line each")
	l.flags(c, strconv.Itoa(dialects.DefaultSlots))
	return c
}

func (o *options) slots(keys []string, n int, system string, number bool) (string, error) {
	if len(keys) == 0 {
		return "", usage("slot takes a key")
	}
	var b strings.Builder
	for _, key := range keys {
		if key == "" {
			return "", usage("a key is empty")
		}
		slot := dialects.SlotOf(key, n)
		fmt.Fprintln(&b, slot)
		if number {
			continue
		}
		statements, err := o.lockingSQL(system, slot, n)
		if err != nil {
			return "", err
		}
		b.WriteString(statements)
	}
	return b.String(), nil
}

// lockingSQL is what locks a slot in a new transaction.
func (o *options) lockingSQL(named string, slot, n int) (string, error) {
	system, err := o.system(named)
	if err != nil {
		return "", err
	}
	if system == dsn.Postgres {
		table, err := tableName(o.table, '"')
		return fmt.Sprintf("begin isolation level read committed;\nselect slot from %s\nwhere (select "+
			"pg_advisory_xact_lock(%s::regclass::oid::int, %d) is not null)\n  and slot = %[3]d and slots = %d "+
			"for update;\n", table, "'"+strings.ReplaceAll(table, "'", "''")+"'", slot, n), err
	}
	table, err := tableName(o.table, '`')
	return fmt.Sprintf("set session transaction isolation level read committed;\nstart transaction;\nselect slot from "+
		"%s where slot = %d and slots = %d for update;\n", table, slot, n), err
}

// tableName is the lock table for a statement, as short as people write it.
func tableName(table string, quote rune) (string, error) {
	if table == doctor.DefaultTable {
		return table, nil
	}
	quoted, err := identifier.Quote(table, quote, 2)
	if err != nil {
		return "", usage("--table: %v", err)
	}
	return quoted, nil
}

// functionsSQL is what docs/protocol.md links to.
//
//go:embed functions.sql
var functionsSQL string

// functionsFor are the functions of a lock table. There is one pair of them in a schema.
func functionsFor(system dsn.System, table string, slots int) (string, error) {
	if system != dsn.Postgres {
		return "", usage("--with-functions is for PostgreSQL: on MySQL and MariaDB one statement is enough, see " +
			"docs/protocol.md")
	}
	table, err := tableName(table, '"')
	if err == nil && strings.ContainsAny(table, "'%$") {
		err = usage("--with-functions: the name of the table must have no quote, percent or dollar sign")
	}
	names := strings.NewReplacer(doctor.DefaultTable, table, strconv.Itoa(dialects.DefaultSlots), strconv.Itoa(slots))
	return names.Replace(functionsSQL), err
}
