package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func newPointsCommand(env *Env) *cobra.Command {
	return newGroup("points", "Look at customers' points, and compare them with the orders",
		newPointsBalanceCommand(env), newPointsLedgerCommand(env), newPointsCheckCommand(env))
}

func newPointsBalanceCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "balance CUSTOMER",
		Short: "Print how many points a customer has",
		Args:  cobra.ExactArgs(1),
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return env.withReader(cmd, func(ctx context.Context, reader *pgstore.Reader) error {
			balance, err := reader.PointsBalance(ctx, args[0])
			if err != nil {
				return translate(err)
			}
			return out.print(env.Stdout, balance, func(t *tableWriter) {
				t.row("CUSTOMER", "POINTS", "ORDERS", "ENTRIES", "LATEST")
				t.row(balance.CustomerID, balance.Points, strconv.FormatInt(balance.Orders, 10), strconv.FormatInt(balance.Entries, 10), timeCell(balance.Latest))
			})
		})
	}
	return cmd
}

func newPointsLedgerCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ledger [CUSTOMER]",
		Short: "List entries of the points ledger: one for each payment and refund",
		Long: `List entries of the points ledger, by source: of a customer, of an order, or all. Pages are asked for with
--after and the last source of the page before.`,
		Args: cobra.MaximumNArgs(1),
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	var filter pgstore.PointsFilter
	flags := cmd.Flags()
	flags.StringVar(&filter.Order, "order", "", "only entries of this order")
	flags.BoolVar(&filter.Unowned, "unowned", false, "only entries of which the customer is not known yet")
	flags.StringVar(&filter.After, "after", "", "only entries behind this source")
	flags.IntVar(&filter.Limit, "limit", 50, fmt.Sprintf("at most so many, up to %d", maxListLimit))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 1 {
			filter.Customer = args[0]
		}
		if filter.Limit < 1 || filter.Limit > maxListLimit {
			return usageError("--limit %d is not between 1 and %d", filter.Limit, maxListLimit)
		}
		return env.withReader(cmd, func(ctx context.Context, reader *pgstore.Reader) error {
			entries, more, err := reader.PointsEntries(ctx, filter)
			if err != nil {
				return err
			}
			if err := out.print(env.Stdout, entries, func(t *tableWriter) {
				t.row("SOURCE", "CUSTOMER", "ORDER", "DELTA", "AMOUNT", "EVENT", "OCCURRED", "PARTITION", "OFFSET")
				for _, e := range entries {
					t.row(e.Source, optionalCell(e.CustomerID), e.OrderID, fmt.Sprintf("%+d", e.Delta), order.Money{Minor: e.AmountMinor, Currency: e.Currency}.String(), e.EventID,
						timeCell(&e.OccurredAt), strconv.Itoa(int(e.KafkaPartition)), strconv.FormatInt(e.KafkaOffset, 10))
				}
			}); err != nil {
				return err
			}
			if more {
				env.sayMore(entries[len(entries)-1].Source)
			}
			return nil
		})
	}
	return cmd
}
