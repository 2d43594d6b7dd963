package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/projection"
)

func newHeldRetryCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retry (ID... | --order ORDER_ID | --all)",
		Short: "Have held records tried at once",
		Long: `Have held records tried at once by the running members, without waiting for the pause between attempts. Only the head of a queue
is tried; when it leaves the queue, the next one follows. A failure counts as any other.`,
		Example: `  orderprojector held retry 17
  orderprojector held retry --all --comment "the trigger is gone, ticket 8"`,
	}
	addOperatorFlags(cmd)
	out := addOutputFlag(cmd)
	byFlags := addByFlags(cmd, true)
	var sel projection.HeldSelection
	cmd.Flags().StringVar(&sel.Order, "order", "", "records of this order")
	cmd.Flags().BoolVar(&sel.All, "all", false, "all held records of the group")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var err error
		if sel.IDs, err = parseIDs(args); err != nil {
			return err
		}
		ways := 0
		for _, chosen := range []bool{len(sel.IDs) > 0, sel.Order != "", sel.All} {
			if chosen {
				ways++
			}
		}
		if ways != 1 {
			return usageError("name IDs, or --order, or --all")
		}
		by, err := byFlags.by()
		if err != nil {
			return err
		}
		return env.withOperator(cmd, kafkaOptional, func(ctx context.Context, o *operating) error {
			retries, err := o.operator.RetryHeld(ctx, sel, by)
			if err != nil {
				return err
			}
			return out.print(env.Stdout, retries, func(t *tableWriter) {
				t.row("ID", "ORDER", "NOW")
				for _, r := range retries {
					now := "due"
					if r.BeingTried {
						now = "being tried already"
					}
					t.row(strconv.FormatInt(r.ID, 10), textCell(r.OrderID), now)
				}
			})
		})
	}
	return cmd
}
