package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

func newDLQPurgeCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "purge --older-than DURATION --comment TEXT",
		Short: "Delete letters that were discarded some time ago, with their records",
		Long: `Delete letters that were discarded at least so long ago, with their records. They cannot be restored then. It is a dry
run unless --execute is given.`,
		Example: `  orderprojector dlq purge --older-than 90d --comment "retention" --execute`,
		Args:    cobra.NoArgs,
	}
	addOperatorFlags(cmd)
	out := addOutputFlag(cmd)
	byFlags := addByFlags(cmd, false)
	execute := addExecuteFlag(cmd)
	var age durationValue
	cmd.Flags().Var(&age, "older-than", "how long ago they were discarded at least: 30d, 12h (required)")
	if err := cmd.MarkFlagRequired("older-than"); err != nil {
		panic(err) // the flag is added above
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		by, err := byFlags.by()
		if err != nil {
			return err
		}
		return env.withOperator(cmd, kafkaOptional, func(ctx context.Context, o *operating) error {
			purged, err := o.store.PurgeLetters(ctx, o.group(), time.Now().Add(-age.d), *execute, by)
			if err != nil {
				return err
			}
			view := struct {
				Executed bool  `json:"executed"`
				Letters  int64 `json:"letters"`
			}{*execute, purged}
			if err := out.print(env.Stdout, view, func(t *tableWriter) {
				verb := "would be deleted"
				if *execute {
					verb = "deleted"
				}
				t.row(fmt.Sprintf("%d dead letters %s", purged, verb))
			}); err != nil {
				return err
			}
			env.sayDryRun(*execute)
			return nil
		})
	}
	return cmd
}
