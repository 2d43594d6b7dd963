package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/projection"
)

func newRebuildCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rebuild --orders ID,ID… --comment TEXT",
		Short: "Fold single orders anew from the topic, in place",
		Long: `Fold orders anew from the topic, with the operators' decisions that stand, and replace their rows, their parked events
and the status of their dead letters, each order in one transaction. Members wait a moment meanwhile. It is refused
for an order when the topic no longer holds what that order was made from. It is a dry run unless --execute is given.`,
		Args: cobra.NoArgs,
	}
	addOperatorFlags(cmd)
	out := addOutputFlag(cmd)
	byFlags := addByFlags(cmd, false)
	execute := addExecuteFlag(cmd)
	orders := cmd.Flags().StringSlice("orders", nil, "the orders to fold anew")
	_ = cmd.MarkFlagRequired("orders")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		by, err := byFlags.by()
		if err != nil {
			return err
		}
		return env.withOperator(cmd, kafkaRequired, func(ctx context.Context, o *operating) error {
			view := struct {
				Executed bool                         `json:"executed"`
				Orders   []projection.ReprojectResult `json:"orders"`
			}{Executed: *execute, Orders: []projection.ReprojectResult{}}
			for _, id := range *orders {
				result, err := o.operator.Reproject(ctx, id, *execute, by)
				if err != nil {
					return err
				}
				view.Orders = append(view.Orders, result)
			}
			if err := out.print(env.Stdout, view, func(t *tableWriter) {
				for _, result := range view.Orders {
					reprojectTable(t, result)
				}
			}); err != nil {
				return err
			}
			env.sayDryRun(*execute)
			return nil
		})
	}
	return cmd
}
