package main

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/txlock/txlock"
	"github.com/txlock/txlock/cmd/txlock/internal/dsn"
	"github.com/txlock/txlock/dialects"
	"github.com/txlock/txlock/dialects/mysql"
	"github.com/txlock/txlock/dialects/postgres"
)

// layout is the flags for what install creates.
type layout struct {
	slots     int
	functions bool // of schema
}

// flags adds the flags. usual describes the number of slots without the flag.
func (l *layout) flags(c *cobra.Command, usual string) {
	c.Flags().IntVar(&l.slots, "slots", 0, "slots that keys share (default: "+usual+")")
}

func (l *layout) check(c *cobra.Command) error {
	if c.Flags().Changed("slots") && (l.slots < 1 || l.slots > dialects.MaxSlots) {
		return usage("--slots %d: the number must be from 1 to %d", l.slots, dialects.MaxSlots)
	}
	return nil
}

const installHelp = `Creates the lock table and seeds its slots, and creates what stands beside it, for tokens,
elections, permits, claims and "once". It changes nothing that is there already: run it as often
as you like, from as many machines as you like. Where programs may not create tables, give the
output of "txlock schema" to a migration tool.`

func newInstall(o *options) *cobra.Command {
	var l layout
	c := newCommand("install [flags]", "Create the lock table and seed it", installHelp,
		"  txlock install\n  txlock install --table ops.locks --slots 1024",
		func(c *cobra.Command, _ []string) error {
			if err := l.check(c); err != nil {
				return err
			}
			var settings []txlock.Option
			if l.slots > 0 {
				settings = append(settings, txlock.WithSlots(l.slots))
			}
			return o.with(c.Context(), func(locks locker) error {
				if err := o.ask(c.Context(), "install", workTimeout, locks.Install); err != nil {
					return err
				}
				return o.print(c, "The lock table %s is installed at %s.\n", o.table, o.server.Address)
			}, settings...)
		})
	c.Args = noArguments
	l.flags(c, fmt.Sprintf("as installed, or %d", dialects.DefaultSlots))
	return c
}

const schemaHelp = `Prints the SQL of "txlock install", for goose, golang-migrate, dbmate, Atlas and the like. It
needs no server, only to know which kind it is.

--with-functions adds txlock_lock(key) and txlock_slot(key), for clients in other languages on
PostgreSQL: see docs/protocol.md.`

func newSchema(o *options) *cobra.Command {
	var l layout
	var system string
	c := newCommand("schema [flags]", "Print the SQL of install, for a migration tool", schemaHelp,
		"  txlock schema --system postgres > migrations/0007_txlock.sql\n"+
			"  txlock schema --dsn mysql://db.example/shop --slots 1024",
		func(c *cobra.Command, _ []string) error {
			if err := l.check(c); err != nil {
				return err
			}
			text, err := o.schema(system, l)
			if err != nil {
				return err
			}
			return o.print(c, "%s", text)
		})
	c.Args = noArguments
	systemFlag(c, &system)
	c.Flags().BoolVar(&l.functions, "with-functions", false, "functions for clients in other languages, on PostgreSQL")
	l.flags(c, strconv.Itoa(dialects.DefaultSlots))
	return c
}

func systemFlag(c *cobra.Command, system *string) {
	c.Flags().StringVar(system, "system", "", "postgres or mysql (default: what the URL of the server says)")
}

// system is the kind of server that a flag names, or else the URL.
func (o *options) system(named string) (dsn.System, error) {
	switch dsn.System(named) {
	case "":
		if err := o.find(); err != nil {
			return "", usage(`%v, or --system postgres or mysql`, err)
		}
		return o.server.System, nil
	case dsn.Postgres:
		return dsn.Postgres, nil
	case dsn.MySQL, "mariadb":
		return dsn.MySQL, nil
	}
	return "", usage("--system %q: it must be postgres or mysql", named)
}

func (o *options) schema(named string, l layout) (string, error) {
	system, err := o.system(named)
	if err != nil {
		return "", err
	}
	info := mysql.New(nil).Info()
	if system == dsn.Postgres {
		info = postgres.New(nil).Info()
	}
	layout, err := info.Layout(o.table)
	if err != nil {
		return "", usage("--table: %v", err)
	}
	slots := cmp.Or(l.slots, dialects.DefaultSlots)
	text := layout.Text(slots)
	if !l.functions {
		return text, nil
	}
	functions, err := functionsFor(system, o.table, slots)
	return text + "\n" + functions, err
}
