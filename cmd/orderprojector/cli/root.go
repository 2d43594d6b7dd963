// Package cli is the command line: one file per command, each a constructor
// that takes the *Env and returns its cobra command. Commands print data to
// Env.Stdout and everything else to Env.Stderr, and report failure by
// returning an error; exit.go alone turns errors into exit codes and hints.
package cli

import (
	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
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
	addConfigFileFlag(root)
	config.AddFlags(root.PersistentFlags(), config.SectionLog)
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return &Error{Code: ExitUsage, Err: err} })
	root.AddCommand(
		newRunCommand(env),
		newMigrateCommand(env),
		newStatusCommand(env),
		newPauseCommand(env),
		newResumeCommand(env),
		newOrdersCommand(env),
		newDLQCommand(env),
		newHeldCommand(env),
		newGapsCommand(env),
		newPointsCommand(env),
		newNotificationsCommand(env),
		newDecisionsCommand(env),
		newOffsetsCommand(env),
		newOutboxCommand(env),
		newAuditCommand(env),
		newVerifyCommand(env),
		newReplayCommand(env),
		newRebuildCommand(env),
		newStatesCommand(env),
		newSchemaCommand(env),
		newConfigCommand(env),
		newGenerateCommand(env),
		newDemoCommand(env),
		newVersionCommand(env),
	)
	markRunErrors(root)
	return root
}
