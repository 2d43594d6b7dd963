package cli

import (
	"context"
	"errors"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// letterRecordView is a letter with its record.
type letterRecordView struct {
	pgstore.LetterView
	recordView
	Next []string `json:"next,omitempty"`
}

func viewLetter(l pgstore.LetterRecord) letterRecordView {
	return letterRecordView{LetterView: l.LetterView, recordView: viewRecord(&l.Record)}
}

func newDLQShowCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Print a dead letter: its record, why it died, and what to do next",
		Long: `Print a dead letter: why it died, how often it was tried, its record as text or, where it is none, as hex, its
headers, and the commands that lead on. Control characters are escaped. --value prints the value alone, byte for byte,
to be corrected and given to "dlq redrive --with".`,
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
			letter, err := reader.LetterRecord(ctx, group, ids[0])
			if errors.Is(err, pgstore.ErrNotFound) {
				return notFoundError("dead letter %d: group %s has none of that ID", ids[0], group)
			}
			if err != nil {
				return err
			}
			if show.value {
				_, err := env.Stdout.Write(letter.Record.Value)
				return err
			}
			view := viewLetter(letter)
			view.Next = nextCommands(letter.LetterView)
			return out.print(env.Stdout, view, func(t *tableWriter) { letterTable(t, letter, view.Next, show) })
		})
	}
	return cmd
}

// nextCommands are the ways on from a letter.
func nextCommands(l pgstore.LetterView) []string {
	id := strconv.FormatInt(l.ID, 10)
	var next []string
	switch l.Status {
	case "open", "exhausted":
		next = append(next,
			"orderprojector dlq redrive "+id+"                                   # what deciding it again would do; --execute does it",
			"orderprojector dlq show "+id+" --value > event.json                 # to correct it, then:",
			"orderprojector dlq redrive "+id+" --with event.json")
		if l.Blocks {
			next = append(next, "orderprojector dlq discard "+id+" --skip --comment TEXT              # what passing its version would do; --execute does it")
		} else {
			next = append(next, "orderprojector dlq discard "+id+" --comment TEXT")
		}
	case "discarded":
		next = append(next, "orderprojector dlq restore "+id+" --comment TEXT")
	}
	return append(next, timelineCommand(l.OrderID)...)
}

func letterTable(t *tableWriter, l pgstore.LetterRecord, next []string, show *recordFlags) {
	t.field("dead letter", strconv.FormatInt(l.ID, 10))
	status := l.Status
	switch {
	case l.Blocking:
		status += ", blocks its order"
	case l.Blocks && (l.Status == "open" || l.Status == "exhausted"):
		status += ", will block its order when its version is next"
	}
	t.field("status", status)
	t.field("reason", l.Reason)
	t.field("detail", l.Detail)
	t.field("attempts", strconv.Itoa(int(l.Attempts)))
	t.field("first failed", timeCell(&l.FirstFailedAt))
	t.field("last failed", timeCell(&l.LastFailedAt))
	due := timeCell(&l.DueAt)
	if l.Overdue {
		due += ", overdue"
	}
	t.field("due", due)
	t.field("owner", optionalCell(l.Owner))
	if l.ClosedAt != nil {
		closed := timeCell(l.ClosedAt)
		if l.ClosedBy != nil {
			closed += " by " + *l.ClosedBy
		}
		if l.ClosedComment != nil {
			closed += ": " + *l.ClosedComment
		}
		t.field("closed", closed)
	}
	t.field("order", optionalCell(l.OrderID))
	t.field("version", versionCell(l.Version))
	t.field("event", optionalCell(l.EventID))
	t.field("type", optionalCell(l.Type))
	show.record(t, &l.Record, next)
}
