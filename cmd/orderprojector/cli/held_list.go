package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func newHeldListCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List held records, by ID",
		Long: `List held records of the group, by ID. A record is held when it alone cannot be made durable while others can. Later
records of its order in the same partition wait behind it in a queue, and only the head of the queue is tried.

Held records of a consumer beside the projector are those of its group: --group.`,
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionDatabase)
	addSettingFlags(cmd, "group", "topic")
	out := addOutputFlag(cmd)
	var filter pgstore.HeldFilter
	flags := cmd.Flags()
	flags.StringVar(&filter.Order, "order", "", "only records of this order")
	flags.BoolVar(&filter.Heads, "heads", false, "only heads of their queues: the records that are tried")
	flags.BoolVar(&filter.Overdue, "overdue", false, "only what is held for longer than the deadline")
	flags.Int64Var(&filter.After, "after", 0, "only records of a higher ID")
	flags.IntVar(&filter.Limit, "limit", 50, fmt.Sprintf("at most so many, up to %d", maxListLimit))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		filter.Topic = givenTopic(cmd)
		if filter.Limit < 1 || filter.Limit > maxListLimit {
			return usageError("--limit %d is not between 1 and %d", filter.Limit, maxListLimit)
		}
		return env.withGroupReader(cmd, func(ctx context.Context, group string, reader *pgstore.Reader) error {
			held, more, err := reader.Held(ctx, group, filter)
			if err != nil {
				return err
			}
			if err := out.print(env.Stdout, held, func(t *tableWriter) { heldRecordsTable(t, held) }); err != nil {
				return err
			}
			if more {
				fmt.Fprintf(env.Stderr, "there are more: --after %d\n", held[len(held)-1].ID)
			}
			return nil
		})
	}
	return cmd
}

func heldRecordsTable(t *tableWriter, held []pgstore.HeldView) {
	t.row("ID", "ORDER", "VERSION", "EVENT", "TYPE", "PARTITION/OFFSET", "QUEUE", "CLASS", "FAILURES", "COUNTED", "HELD SINCE", "NEXT TRY", "CAUSE")
	for i := range held {
		h := &held[i]
		since := timeCell(&h.HeldAt)
		if h.Overdue {
			since += " overdue"
		}
		t.row(strconv.FormatInt(h.ID, 10), optionalCell(h.OrderID), versionCell(h.Version), optionalCell(h.EventID), optionalCell(h.Type),
			fmt.Sprintf("%d/%d", h.KafkaPartition, h.KafkaOffset), heldPlace(h.Before), h.Class, strconv.Itoa(int(h.Failures)),
			strconv.Itoa(int(h.Counted)), since, timeCell(&h.DueAt), clipCell(h.Cause, 100))
	}
}
