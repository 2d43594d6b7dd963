package cli

import (
	"context"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func newDecisionsCommand(env *Env) *cobra.Command {
	return newGroup("decisions", "Look at what operators decided about orders, and take it back",
		newDecisionsListCommand(env), newDecisionsShowCommand(env), newDecisionsUndoCommand(env))
}

// decisionView is an operator's decision in the form that is printed.
type decisionView struct {
	ID          int64      `json:"id"`
	OrderID     string     `json:"order_id"`
	Kind        string     `json:"kind"`
	FromVersion int64      `json:"from_version"`
	ToVersion   int64      `json:"to_version"`
	LetterID    *int64     `json:"letter_id"`
	Topic       string     `json:"kafka_topic,omitempty"`
	Partition   *int32     `json:"kafka_partition,omitempty"`
	Offset      *int64     `json:"kafka_offset,omitempty"`
	Digest      string     `json:"digest,omitempty"`
	Substitute  *bytesView `json:"substitute,omitempty"`
	Actor       string     `json:"actor"`
	Comment     string     `json:"comment"`
	DecidedAt   time.Time  `json:"decided_at"`
	UndoneAt    *time.Time `json:"undone_at"`
	UndoneBy    string     `json:"undone_by,omitempty"`
	UndoComment string     `json:"undone_comment,omitempty"`
}

func viewDecision(d projection.OperatorDecision) decisionView {
	v := decisionView{
		ID: d.ID, OrderID: d.OrderID, Kind: string(d.Kind), FromVersion: d.From, ToVersion: d.To,
		Actor: d.By.Actor, Comment: d.By.Comment, DecidedAt: d.DecidedAt, Substitute: viewBytes(d.Substitute),
	}
	if d.LetterID != 0 {
		v.LetterID = &d.LetterID
	}
	if d.Log.Topic != "" {
		v.Topic, v.Partition, v.Offset, v.Digest = d.Log.Topic, &d.Log.Partition, &d.Offset, hex.EncodeToString(d.Digest[:])
	}
	if d.Undone != nil {
		v.UndoneAt, v.UndoneBy, v.UndoComment = &d.UndoneAt, d.Undone.Actor, d.Undone.Comment
	}
	return v
}

func newDecisionsListCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List operators' decisions that stand, the newest first",
		Args:  cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	var filter pgstore.DecisionFilter
	flags := cmd.Flags()
	flags.StringVar(&filter.Order, "order", "", "only decisions about this order")
	flags.BoolVar(&filter.Undone, "undone", false, "those that were undone, too")
	flags.Int64Var(&filter.Below, "below", 0, "only decisions of a lower ID")
	flags.IntVar(&filter.Limit, "limit", 50, fmt.Sprintf("at most so many, up to %d", maxListLimit))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if filter.Limit < 1 || filter.Limit > maxListLimit {
			return usageError("--limit %d is not between 1 and %d", filter.Limit, maxListLimit)
		}
		return env.withReader(cmd, func(ctx context.Context, reader *pgstore.Reader) error {
			decisions, more, err := reader.OperatorDecisions(ctx, filter)
			if err != nil {
				return err
			}
			views := []decisionView{}
			for _, d := range decisions {
				v := viewDecision(d)
				v.Substitute = nil // may be large: decisions show has it
				views = append(views, v)
			}
			if err := out.print(env.Stdout, views, func(t *tableWriter) {
				t.row("ID", "ORDER", "KIND", "VERSIONS", "LETTER", "DECIDED", "BY", "UNDONE BY", "COMMENT")
				for _, v := range views {
					t.row(strconv.FormatInt(v.ID, 10), v.OrderID, v.Kind, rangeCell(v.FromVersion, v.ToVersion), versionCell(v.LetterID),
						timeCell(&v.DecidedAt), v.Actor, textCell(v.UndoneBy), v.Comment)
				}
			}); err != nil {
				return err
			}
			if more {
				fmt.Fprintf(env.Stderr, "there are more: --below %d\n", views[len(views)-1].ID)
			}
			return nil
		})
	}
	return cmd
}

func newDecisionsShowCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ID",
		Short: "Print an operator's decision, with its substitute",
		Args:  cobra.ExactArgs(1),
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := parseIDs(args)
		if err != nil {
			return err
		}
		return env.withReader(cmd, func(ctx context.Context, reader *pgstore.Reader) error {
			decisions, _, err := reader.OperatorDecisions(ctx, pgstore.DecisionFilter{ID: ids[0], Undone: true, Limit: 1})
			if err != nil {
				return err
			}
			if len(decisions) == 0 {
				return notFoundError("decision %d does not exist", ids[0])
			}
			v := viewDecision(decisions[0])
			return out.print(env.Stdout, v, func(t *tableWriter) {
				t.field("decision", strconv.FormatInt(v.ID, 10))
				t.field("kind", v.Kind)
				t.field("order", v.OrderID)
				t.field("versions", rangeCell(v.FromVersion, v.ToVersion))
				t.field("dead letter", versionCell(v.LetterID))
				if v.Offset != nil {
					t.field("record", fmt.Sprintf("%s partition %d offset %d", v.Topic, *v.Partition, *v.Offset))
				}
				t.field("decided", timeCell(&v.DecidedAt)+" by "+v.Actor)
				t.field("comment", v.Comment)
				if v.UndoneAt != nil {
					t.field("undone", timeCell(v.UndoneAt)+" by "+v.UndoneBy)
					t.field("undo comment", v.UndoComment)
				}
				if v.Substitute != nil {
					valueSection(t, decisions[0].Substitute, false, true)
				}
			})
		})
	}
	return cmd
}

func newDecisionsUndoCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "undo ID --comment TEXT",
		Short: "Take a decision back, and fold its order anew from the topic",
		Long: `Take a decision back: its order is folded anew from the topic with the decisions that remain, and its row, its parked
events and its dead letters are replaced, all in one transaction. Members wait a moment meanwhile. It is refused when
the topic no longer holds what the order was made from. It is a dry run unless --execute is given.`,
		Args: cobra.ExactArgs(1),
	}
	addOperatorFlags(cmd)
	out := addOutputFlag(cmd)
	byFlags := addByFlags(cmd, false)
	execute := addExecuteFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := parseIDs(args)
		if err != nil {
			return err
		}
		by, err := byFlags.by()
		if err != nil {
			return err
		}
		return env.withOperator(cmd, kafkaRequired, func(ctx context.Context, o *operating) error {
			d, result, err := o.operator.Undo(ctx, ids[0], *execute, by)
			if err != nil {
				return err
			}
			view := struct {
				Executed bool         `json:"executed"`
				Decision decisionView `json:"decision"`
				projection.ReprojectResult
			}{*execute, viewDecision(d), result}
			if err := out.print(env.Stdout, view, func(t *tableWriter) {
				t.field("decision", fmt.Sprintf("%d: %s, versions %s", d.ID, d.Kind, rangeCell(d.From, d.To)))
				reprojectTable(t, result)
			}); err != nil {
				return err
			}
			env.sayDryRun(*execute)
			return nil
		})
	}
	return cmd
}

func reprojectTable(t *tableWriter, r projection.ReprojectResult) {
	t.field("order", r.Before.OrderID)
	t.field("before", standingCell(&r.Before))
	t.field("after", standingCell(&r.After))
	t.field("records folded", strconv.Itoa(r.Records))
	t.field("parked events", strconv.Itoa(r.Parked))
	if len(r.Letters) == 0 {
		return
	}
	t.section("DEAD LETTERS")
	t.row("ID", "VERSION", "WAS", "IS", "DETAIL")
	for _, m := range r.Letters {
		id := "new"
		if m.LetterID != 0 {
			id = strconv.FormatInt(m.LetterID, 10)
		}
		t.row(id, strconv.FormatInt(m.Version, 10), textCell(string(m.From)), string(m.To), m.Detail)
	}
}
