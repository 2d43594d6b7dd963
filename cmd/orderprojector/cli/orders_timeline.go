package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func newOrdersTimelineCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "timeline ORDER_ID",
		Short: "Print what happened to an order, and what could not happen yet",
		Long: `Print an order's applied events in version order, and with them its parked
events, its open dead letters and its held records.`,
		Args: cobra.ExactArgs(1),
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return env.withReader(cmd, func(ctx context.Context, reader *pgstore.Reader) error {
			timeline, err := reader.Timeline(ctx, args[0])
			if errors.Is(err, pgstore.ErrNotFound) {
				return notFoundError("order %q: nothing is known of it", args[0])
			}
			if err != nil {
				return err
			}
			return out.print(env.Stdout, timeline, func(t *tableWriter) { timelineTable(t, timeline) })
		})
	}
	return cmd
}

func timelineTable(t *tableWriter, timeline pgstore.Timeline) {
	status := timeline.ProjectionStatus
	switch {
	case status == "":
		status = "nothing is applied or parked"
	case timeline.State == "":
		status = "nothing is applied yet; " + projectionCell(status, timeline.WaitingForVersion, timeline.Overdue)
	default:
		status = fmt.Sprintf("%s, version %d; %s", timeline.State, timeline.Version, projectionCell(status, timeline.WaitingForVersion, timeline.Overdue))
	}
	t.row("order " + timeline.OrderID + ": " + status)
	t.flush()
	t.row("VERSION", "WHAT", "CHANGE", "TYPE", "EVENT", "OCCURRED", "PARTITION/OFFSET", "DETAIL")
	for _, e := range timeline.Entries {
		t.row(versionCell(e.Version), string(e.Kind), changeCell(e), textCell(e.Type), optionalCell(e.EventID), timeCell(e.OccurredAt),
			fmt.Sprintf("%d/%d", e.KafkaPartition, e.KafkaOffset), detailCell(e))
	}
}

func changeCell(e pgstore.TimelineEntry) string {
	if e.To == "" {
		return "-"
	}
	from := e.From
	if from == "" {
		from = "(none)"
	}
	return from + " -> " + e.To
}

func detailCell(e pgstore.TimelineEntry) string {
	switch e.Kind {
	case pgstore.TimelineParked:
		return "parked since " + timeCell(e.Since)
	case pgstore.TimelineDeadLetter:
		blocks := ""
		if e.Blocks {
			blocks = ", blocks the order"
		}
		return fmt.Sprintf("dead letter %s, %s%s: %s", versionCell(e.DeadLetterID), e.Status, blocks, e.Reason+": "+e.Detail)
	case pgstore.TimelineHeld:
		return fmt.Sprintf("held record %s since %s, %s: %s", versionCell(e.HeldRecordID), timeCell(e.Since), e.Reason, clipCell(e.Detail, 200))
	}
	return ""
}
