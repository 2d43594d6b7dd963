package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/domain/order"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

const maxListLimit = 10_000

func newOrdersListCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List orders by ID",
		Long: `List orders by ID. Pages are asked for with --after and the last ID of the page
before; an order that changes meanwhile is neither skipped nor repeated.

Orders of which nothing is applied yet are not orders: --unapplied lists them instead.`,
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	var filter pgstore.OrderFilter
	var unapplied bool
	flags := cmd.Flags()
	flags.StringVar(&filter.State, "state", "", "only orders in this state")
	flags.StringVar(&filter.Customer, "customer", "", "only orders of this customer ID")
	flags.StringVar(&filter.Status, "status", "", "only orders of this projection status: ok, waiting or blocked")
	flags.StringVar(&filter.After, "after", "", "only orders behind this ID")
	flags.BoolVar(&unapplied, "unapplied", false, "list the relation waiting_orders: orders of which nothing is applied yet")
	flags.IntVar(&filter.Limit, "limit", 50, fmt.Sprintf("at most so many, up to %d", maxListLimit))
	for flag, choices := range map[string][]string{"state": stateNames(), "status": {"ok", "waiting", "blocked"}} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(choices, cobra.ShellCompDirectiveNoFileComp))
	}
	cmd.MarkFlagsMutuallyExclusive("unapplied", "state")
	cmd.MarkFlagsMutuallyExclusive("unapplied", "customer")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := checkFilter(filter); err != nil {
			return err
		}
		return env.withReader(cmd, func(ctx context.Context, reader *pgstore.Reader) error {
			if unapplied {
				return env.listWaitingOrders(ctx, reader, filter, out)
			}
			return env.listOrders(ctx, reader, filter, out)
		})
	}
	return cmd
}

func (env *Env) listOrders(ctx context.Context, reader *pgstore.Reader, filter pgstore.OrderFilter, out *output) error {
	orders, more, err := reader.Orders(ctx, filter)
	if err != nil {
		return err
	}
	if err := out.print(env.Stdout, orders, func(t *tableWriter) { ordersTable(t, orders) }); err != nil {
		return err
	}
	if more {
		env.sayMore(orders[len(orders)-1].OrderID)
	}
	return nil
}

func (env *Env) listWaitingOrders(ctx context.Context, reader *pgstore.Reader, filter pgstore.OrderFilter, out *output) error {
	orders, more, err := reader.WaitingOrders(ctx, filter)
	if err != nil {
		return err
	}
	if err := out.print(env.Stdout, orders, func(t *tableWriter) { waitingOrdersTable(t, orders) }); err != nil {
		return err
	}
	if more {
		env.sayMore(orders[len(orders)-1].OrderID)
	}
	return nil
}

func (env *Env) sayMore(lastID string) {
	fmt.Fprintf(env.Stderr, "there are more: --after %q\n", lastID)
}

func stateNames() []string {
	var names []string
	for _, s := range order.States() {
		names = append(names, string(s))
	}
	return names
}

func checkFilter(f pgstore.OrderFilter) error {
	if f.State != "" && !slices.Contains(stateNames(), f.State) {
		return usageError("--state %q is not one of %s", f.State, strings.Join(stateNames(), ", "))
	}
	if f.Status != "" && !slices.Contains([]string{"ok", "waiting", "blocked"}, f.Status) {
		return usageError("--status %q is not one of ok, waiting, blocked", f.Status)
	}
	if f.Limit < 1 || f.Limit > maxListLimit {
		return usageError("--limit %d is not between 1 and %d", f.Limit, maxListLimit)
	}
	return nil
}

func ordersTable(t *tableWriter, orders []pgstore.Order) {
	t.row("ORDER", "CUSTOMER", "STATE", "VERSION", "TOTAL", "PAID", "REFUNDED", "CURRENCY", "UPDATED", "PROJECTION")
	for _, o := range orders {
		t.row(o.OrderID, o.CustomerID, o.State, strconv.FormatInt(o.Version, 10), o.Total, o.Paid, o.Refunded, o.Currency,
			timeCell(o.UpdatedAt), projectionCell(o.ProjectionStatus, o.WaitingForVersion, o.Overdue))
	}
}

func waitingOrdersTable(t *tableWriter, orders []pgstore.WaitingOrder) {
	t.row("ORDER", "PROJECTION", "PROJECTED")
	for _, o := range orders {
		t.row(o.OrderID, projectionCell(o.ProjectionStatus, o.WaitingForVersion, o.Overdue), timeCell(&o.ProjectedAt))
	}
}
