package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/txlock/txlock/cmd/txlock/internal/dsn"
)

// complete sets up what a shell proposes: flags, and files for a command that is to be run.
func (o *options) complete(root *cobra.Command) {
	root.CompletionOptions.SetDefaultShellCompDirective(cobra.ShellCompDirectiveNoFileComp)
	root.InitDefaultCompletionCmd()
	for _, c := range root.Commands() {
		switch c.Name() {
		case "completion": // else it shows its help for any shell, and exits with 0
			c.Args = cobra.ArbitraryArgs
			c.RunE = func(c *cobra.Command, shell []string) error {
				if len(shell) > 0 {
					return usage("unknown shell %q: it must be bash, zsh, fish or powershell", shell[0])
				}
				return c.Help()
			}
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

// completeCommand leaves the words after -- to the shell. Cobra has removed the -- and does not say
// so.
func (o *options) completeCommand(*cobra.Command, []string, string) ([]cobra.Completion, cobra.ShellCompDirective) {
	if slices.Contains(o.typed[:len(o.typed)-1], "--") {
		return nil, cobra.ShellCompDirectiveDefault
	}
	return nil, cobra.ShellCompDirectiveNoFileComp
}
