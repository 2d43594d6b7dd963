package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// newGroup makes a command that only holds others. Alone, or with a word that
// is none of them, it is a usage error instead of a help text that succeeds.
func newGroup(use, short string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{Use: use, Short: short}
	var names []string
	for _, c := range commands {
		names = append(names, c.Name())
	}
	group.RunE = func(_ *cobra.Command, args []string) error {
		if len(args) > 0 {
			return usageError("unknown command %q for %q: use %s", args[0], use, strings.Join(names, ", "))
		}
		return usageError("%q needs a command: %s", use, strings.Join(names, ", "))
	}
	group.AddCommand(commands...)
	return group
}
