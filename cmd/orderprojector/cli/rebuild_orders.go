package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/projection"
)

// rebuildOrders folds single orders anew, in place.
func (env *Env) rebuildOrders(cmd *cobra.Command, out *output, byFlags *byFlags, orders []string, execute bool) error {
	by, err := byFlags.by()
	if err != nil {
		return err
	}
	return env.withOperator(cmd, kafkaRequired, func(ctx context.Context, o *operating) error {
		view := struct {
			Executed bool                         `json:"executed"`
			Orders   []projection.ReprojectResult `json:"orders"`
		}{Executed: execute, Orders: []projection.ReprojectResult{}}
		for _, id := range orders {
			result, err := o.operator.Reproject(ctx, id, execute, by)
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
		env.sayDryRun(execute)
		return nil
	})
}
