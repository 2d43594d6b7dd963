// Package cli is the command line: one file per command, each a constructor
// that takes the *Env and returns its cobra command. Commands print data to
// Env.Stdout and everything else to Env.Stderr, and report failure by
// returning an error; exit.go alone turns errors into exit codes and hints.
package cli

import (
	"github.com/spf13/cobra"
)

// NewRoot builds the whole command tree.
func NewRoot(env *Env) *cobra.Command {
	root := &cobra.Command{
		Use:   "orderprojector",
		Short: "Project order events from Kafka into a PostgreSQL table that anybody can query",
		Long: `orderprojector is a Kafka consumer-group member that applies order events through
the order state machine to PostgreSQL. Duplicates touch zero rows, events out of
order never roll a state back, and nothing is lost silently.`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	root.AddCommand(
		newVersionCommand(env),
		// newGenerateCommand(env),
		// newDemoCommand(env),
	)
	markRunErrors(root)
	return root
}
