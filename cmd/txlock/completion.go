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

// complete says what a shell proposes: nothing is a file, but what "txlock run" runs.
func (o *options) complete(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	for _, c := range root.Commands() {
		switch c.Name() {
		case "status", "break":
			c.ValidArgsFunction = o.completeHeld
		case "run":
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

// completing is how long somebody who has pressed a key waits gladly.
const completing = time.Second

// completeHeld proposes the keys that are held just now, as far as the server says so in time.
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
		return nil, nothingElse // without a farewell to a server that may be silent
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

// completeCommand leaves what is behind -- to the shell. Cobra has read -- away, and does not say
// so.
func (o *options) completeCommand(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if slices.Contains(o.typed[:len(o.typed)-1], "--") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
