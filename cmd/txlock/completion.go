package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/txlock/txlock/cmd/txlock/internal/dsn"
	"github.com/txlock/txlock/cmd/txlock/internal/terminal"
)

// complete sets up what a shell proposes. Only a command to be run is completed as a file.
func (o *options) complete(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	for _, c := range root.Commands() {
		switch c.Name() {
		case "status", "break":
			c.ValidArgsFunction = o.completeHeld
		case "run", "once":
			c.ValidArgsFunction = o.completeCommand
		case "schema":
			systems := []cobra.Completion{string(dsn.Postgres), string(dsn.MySQL)}
			if err := c.RegisterFlagCompletionFunc("system",
				cobra.FixedCompletions(systems, cobra.ShellCompDirectiveNoFileComp)); err != nil {
				panic("bug: " + err.Error())
			}
		}
	}
}

// completing limits the wait of a user who has pressed the tab key.
const completing = time.Second

// completeHeld proposes the keys that are held, if the server tells them in time.
func (o *options) completeHeld(c *cobra.Command, typed []string, begun string) (
	[]cobra.Completion, cobra.ShellCompDirective,
) {
	const nothingElse = cobra.ShellCompDirectiveNoFileComp
	if c.Name() == "break" && len(typed) > 0 {
		return nil, nothingElse
	}
	ctx, cancel := context.WithTimeout(c.Context(), completing)
	defer cancel()
	locks, err := o.open(ctx)
	if err != nil {
		return nil, nothingElse
	}
	holdings, err := locks.Inspect(ctx)
	if err != nil {
		return nil, nothingElse // leaves the connection open: closing could wait for a silent server
	}
	defer leave(locks)
	var keys []cobra.Completion
	for _, h := range holdings {
		whole := !strings.HasSuffix(h.Key, "…") && terminal.Clean(h.Key) == h.Key // and one line
		if h.Key != "" && whole && strings.HasPrefix(h.Key, begun) && !slices.Contains(typed, h.Key) {
			keys = append(keys, h.Key)
		}
	}
	return keys, nothingElse
}

// completeCommand leaves the words after -- to the shell. Cobra has removed the -- and does not say
// so.
func (o *options) completeCommand(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if slices.Contains(o.typed[:len(o.typed)-1], "--") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
