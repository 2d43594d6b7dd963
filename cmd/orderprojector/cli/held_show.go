package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// heldRecordView is a held record with its bytes.
type heldRecordView struct {
	pgstore.HeldView
	recordView
	Next []string `json:"next"`
}

func newHeldShowCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Print a held record: its bytes, why it is held, and what to do next",
		Long: `Print a held record: why it is held, how often it was tried, when it is tried again, its bytes as text or, where they are
none, as hex, its headers, and the commands that lead on. Control characters are escaped. --value prints the value alone.`,
		Args: cobra.ExactArgs(1),
	}
	addConfigFlags(cmd, config.SectionDatabase)
	addSettingFlags(cmd, "group")
	out := addOutputFlag(cmd)
	show := addRecordFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := parseIDs(args)
		if err != nil {
			return err
		}
		return env.withGroupReader(cmd, func(ctx context.Context, group string, reader *pgstore.Reader) error {
			held, err := reader.HeldRecord(ctx, group, ids[0])
			if errors.Is(err, pgstore.ErrNotFound) {
				return notFoundError("held record %d: group %s has none of that ID", ids[0], group)
			}
			if err != nil {
				return err
			}
			if show.value {
				_, err := env.Stdout.Write(held.Record.Value)
				return err
			}
			view := heldRecordView{held.HeldView, viewRecord(&held.Record), nextForHeld(&held.HeldView, group)}
			return out.print(env.Stdout, view, func(t *tableWriter) { heldRecordTable(t, &held, view.Next, show) })
		})
	}
	return cmd
}

// nextForHeld are the ways on from a held record.
func nextForHeld(h *pgstore.HeldView, group string) []string {
	id, in := strconv.FormatInt(h.ID, 10), " --group "+shellQuote(group)
	var next []string
	if h.Head() {
		next = append(next,
			"orderprojector held retry "+id+in+"                  # once the cause has ended: tries the record at once",
			"orderprojector held give-up "+id+in+"                # what making it a dead letter would do; --execute --comment TEXT does it")
	} else {
		next = append(next, "orderprojector held list --order "+shellQuote(*h.OrderID)+" --heads"+in+"   # the record that is tried first")
	}
	return append(next, timelineCommand(h.OrderID)...)
}

func heldRecordTable(t *tableWriter, h *pgstore.HeldRecord, next []string, show *recordFlags) {
	t.field("held record", strconv.FormatInt(h.ID, 10))
	t.field("queue", heldPlace(h.Before))
	t.field("cause", h.Cause)
	t.field("class", h.Class)
	t.field("failures", fmt.Sprintf("%d, of which %d count (a dead letter at %d, after %s or more)", h.Failures, h.Counted, projection.MaxHeldFailures, projection.MinHeldAge))
	since := timeCell(&h.HeldAt)
	if h.Overdue {
		since += ", overdue"
	}
	t.field("held since", since)
	t.field("last failed", timeCell(&h.FailedAt))
	t.field("next try", timeCell(&h.DueAt))
	if h.RetriedBy != nil {
		t.field("retry asked by", *h.RetriedBy)
	}
	t.field("order", optionalCell(h.OrderID))
	t.field("version", versionCell(h.Version))
	t.field("event", optionalCell(h.EventID))
	t.field("type", optionalCell(h.Type))
	show.record(t, &h.Record, next)
}
