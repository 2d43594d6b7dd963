package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func newOrdersGetCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "get ORDER_ID",
		Short: "Print one order: its state, money, and what it waits for",
		Long: `Print one order: its state, money, and what it waits for.

To read what you wrote, say which version you published: --min-version N --wait 2s prints the order once
it has that version, and fails (1, or 4 while nothing is known of the order) when that takes longer.`,
		Args: cobra.ExactArgs(1),
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	var least atLeast
	cmd.Flags().Int64Var(&least.version, "min-version", 0, "the order has to have this version")
	cmd.Flags().DurationVar(&least.wait, "wait", 0, "how long to wait for --min-version")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := least.validate(cmd); err != nil {
			return err
		}
		return env.withReader(cmd, func(ctx context.Context, reader *pgstore.Reader) error {
			answer, err := least.read(cmd.Context(), ctx, reader, args[0])
			if errors.Is(err, pgstore.ErrNotFound) {
				return orderNotFound(args[0])
			}
			if err != nil {
				return err
			}
			return out.print(env.Stdout, orderView(answer), func(t *tableWriter) { orderTable(t, answer) })
		})
	}
	return cmd
}

func orderNotFound(id string) error {
	return &Error{
		Code: ExitNotFound, Err: fmt.Errorf("order %q: nothing is known of it", id),
		Advice: "its events may not be consumed yet, or unreadable: see orders timeline " + strconv.Quote(id) + " and the relation dead_letters",
	}
}

// orderView is the JSON of an order: the columns of orders, or those of
// waiting_orders, and what holds it back.
func orderView(a pgstore.OrderAnswer) any {
	if a.Order != nil {
		return struct {
			*pgstore.Order
			Obstacle *pgstore.Obstacle `json:"held_back_by,omitempty"`
		}{a.Order, a.Obstacle}
	}
	return struct {
		*pgstore.WaitingOrder
		Version  int64             `json:"version"`
		Obstacle *pgstore.Obstacle `json:"held_back_by,omitempty"`
	}{a.Waiting, 0, a.Obstacle}
}

func orderTable(t *tableWriter, a pgstore.OrderAnswer) {
	if o := a.Order; o != nil {
		t.field("order", o.OrderID)
		t.field("customer", o.CustomerID)
		t.field("state", o.State)
		t.field("version", strconv.FormatInt(o.Version, 10))
		t.field("total", moneyCell(o.Total, o.Currency, o.TotalMinor))
		t.field("paid", moneyCell(o.Paid, o.Currency, o.PaidMinor))
		t.field("refunded", moneyCell(o.Refunded, o.Currency, o.RefundedMinor))
		t.field("created at", timeCell(o.CreatedAt))
		t.field("updated at", timeCell(o.UpdatedAt))
		t.field("projected at", timeCell(&o.ProjectedAt))
		t.field("last event", textCell(o.LastEventID))
		t.field("record", fmt.Sprintf("%s partition %d offset %d", o.KafkaTopic, o.KafkaPartition, o.KafkaOffset))
		t.field("projection", projectionCell(o.ProjectionStatus, o.WaitingForVersion, o.Overdue))
	} else {
		t.field("order", a.Waiting.OrderID)
		t.field("version", "0 (nothing is applied yet: the order is in waiting_orders, not in orders)")
		t.field("projected at", timeCell(&a.Waiting.ProjectedAt))
		t.field("projection", projectionCell(a.Waiting.ProjectionStatus, a.Waiting.WaitingForVersion, a.Waiting.Overdue))
	}
	if a.Obstacle != nil {
		obstacleTable(t, a.Obstacle)
	}
}

func obstacleTable(t *tableWriter, o *pgstore.Obstacle) {
	if o.ParkedEvents > 0 {
		t.field("parked", fmt.Sprintf("%d of its events, from version %s on, since %s", o.ParkedEvents, versionCell(o.ParkedFrom), timeCell(o.WaitingSince)))
	}
	for _, l := range o.Letters {
		t.field("blocked by", fmt.Sprintf("dead letter %d, version %d, %s: %s", l.ID, l.Version, l.Reason, l.Detail))
	}
	for _, h := range o.Held {
		t.field("blocked by", fmt.Sprintf("held record %d, version %s, failed %d times since %s: %s", h.ID, versionCell(h.Version), h.Failures, timeCell(&h.HeldAt), h.Cause))
	}
	if behind := o.HeldRecords - int64(len(o.Held)); behind > 0 {
		t.field("held behind", fmt.Sprintf("later records of the order: %d", behind))
	}
	if len(o.Held) > 0 {
		t.field("next", fmt.Sprintf("orderprojector held show %d --group %s", o.Held[0].ID, shellQuote(o.Held[0].Group)))
	}
}

func projectionCell(status string, waitingFor *int64, overdue bool) string {
	if waitingFor == nil {
		return status
	}
	cell := fmt.Sprintf("%s, for version %d", status, *waitingFor)
	if overdue {
		cell += ", overdue"
	}
	return cell
}

func moneyCell(amount, currency string, minor int64) string {
	return fmt.Sprintf("%s %s (%d minor units)", amount, currency, minor)
}
