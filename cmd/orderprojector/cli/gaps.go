package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func newGapsCommand(env *Env) *cobra.Command {
	return newGroup("gaps", "Look at orders that wait for missing versions, and end their waiting",
		newGapsListCommand(env), newGapsShowCommand(env), newGapsAssignCommand(env), newGapsRepairCommand(env), newGapsAcceptCommand(env))
}

func newGapsListCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List orders that wait for versions which have neither come nor been refused",
		Args:  cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	var filter pgstore.GapFilter
	flags := cmd.Flags()
	flags.BoolVar(&filter.Overdue, "overdue", false, "only those past their deadline")
	flags.StringVar(&filter.Owner, "owner", "", "only gaps of this owner")
	flags.StringVar(&filter.After, "after", "", "only orders behind this ID")
	flags.IntVar(&filter.Limit, "limit", 50, fmt.Sprintf("at most so many, up to %d", maxListLimit))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if filter.Limit < 1 || filter.Limit > maxListLimit {
			return usageError("--limit %d is not between 1 and %d", filter.Limit, maxListLimit)
		}
		return env.withReader(cmd, func(ctx context.Context, reader *pgstore.Reader) error {
			gaps, more, err := reader.Gaps(ctx, filter)
			if err != nil {
				return err
			}
			if err := out.print(env.Stdout, gaps, func(t *tableWriter) { gapsTable(t, gaps) }); err != nil {
				return err
			}
			if more {
				env.sayMore(gaps[len(gaps)-1].OrderID)
			}
			return nil
		})
	}
	return cmd
}

func gapsTable(t *tableWriter, gaps []pgstore.Gap) {
	t.row("ORDER", "MISSING", "PARKED", "WAITING SINCE", "DUE", "OWNER", "STATE")
	for _, g := range gaps {
		due := timeCell(&g.DueAt)
		if g.Overdue {
			due += " overdue"
		}
		t.row(g.OrderID, rangeCell(g.FromVersion, g.ToVersion), strconv.FormatInt(g.ParkedEvents, 10), timeCell(&g.WaitingSince), due,
			optionalCell(g.Owner), textCell(g.State))
	}
}

func rangeCell(from, to int64) string {
	if from == to {
		return strconv.FormatInt(from, 10)
	}
	return fmt.Sprintf("%d-%d", from, to)
}

func newGapsShowCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show ORDER_ID",
		Short: "Print the gap of an order, what is parked behind it, and what to do next",
		Args:  cobra.ExactArgs(1),
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return env.withReader(cmd, func(ctx context.Context, reader *pgstore.Reader) error {
			gaps, _, err := reader.Gaps(ctx, pgstore.GapFilter{Orders: args, Limit: 1})
			if err != nil {
				return err
			}
			if len(gaps) == 0 {
				return notFoundError("order %q has no gap", args[0])
			}
			timeline, err := reader.Timeline(ctx, args[0])
			if err != nil {
				return err
			}
			parked := slices.DeleteFunc(timeline.Entries, func(e pgstore.TimelineEntry) bool { return e.Kind != pgstore.TimelineParked })
			view := struct {
				pgstore.Gap
				Parked []pgstore.TimelineEntry `json:"parked"`
				Next   []string                `json:"next"`
			}{gaps[0], parked, gapCommands(gaps[0])}
			return out.print(env.Stdout, view, func(t *tableWriter) { gapTable(t, view.Gap, parked, view.Next) })
		})
	}
	return cmd
}

func gapCommands(g pgstore.Gap) []string {
	id := shellQuote(g.OrderID)
	return []string{
		"orderprojector gaps repair " + id + " --comment TEXT        # reads the topic again for what is missing",
		fmt.Sprintf("orderprojector gaps accept %s --versions %s --comment TEXT   # what passing them would do; --execute does it", id, rangeCell(g.FromVersion, g.ToVersion)),
		"orderprojector gaps assign " + id + " --owner NAME --comment TEXT",
	}
}

func gapTable(t *tableWriter, g pgstore.Gap, parked []pgstore.TimelineEntry, next []string) {
	t.field("order", g.OrderID)
	t.field("state", fmt.Sprintf("%s, version %d", textCell(g.State), g.Version))
	t.field("missing", rangeCell(g.FromVersion, g.ToVersion))
	t.field("waiting since", timeCell(&g.WaitingSince))
	due := timeCell(&g.DueAt)
	if g.Overdue {
		due += ", overdue"
	}
	t.field("due", due)
	t.field("owner", optionalCell(g.Owner))
	t.section(fmt.Sprintf("PARKED (%d)", len(parked)))
	t.row("VERSION", "TYPE", "EVENT", "OCCURRED", "PARTITION/OFFSET", "SINCE")
	for _, e := range parked {
		t.row(versionCell(e.Version), e.Type, optionalCell(e.EventID), timeCell(e.OccurredAt), fmt.Sprintf("%d/%d", e.KafkaPartition, e.KafkaOffset), timeCell(e.Since))
	}
	t.section("NEXT")
	for _, command := range next {
		t.line("  " + command)
	}
}

func newGapsAssignCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "assign ORDER_ID... --owner NAME --due TIME --comment TEXT",
		Short: "Say who takes care of gaps, and until when",
		Args:  cobra.MinimumNArgs(1),
	}
	addOperatorFlags(cmd)
	byFlags := addByFlags(cmd, false)
	assign := addAssignFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		a, err := assign.get(cmd)
		if err != nil {
			return err
		}
		by, err := byFlags.by()
		if err != nil {
			return err
		}
		return env.withOperator(cmd, kafkaOptional, func(ctx context.Context, o *operating) error {
			for _, id := range args {
				if err := o.store.AssignGap(ctx, id, a, by); err != nil {
					return err
				}
				fmt.Fprintf(env.Stdout, "the gap of order %s is assigned\n", printable(id))
			}
			return nil
		})
	}
	return cmd
}

// repairedGap is one order's answer to gaps repair.
type repairedGap struct {
	OrderID string `json:"order_id"`
	projection.GapResult
	Error string `json:"error,omitempty"`
}

// repairAtOnce is how many orders one reading of the topic looks for.
const repairAtOnce = 1000

func newGapsRepairCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "repair ORDER_ID... --comment TEXT",
		Short: "Read the topic again for missing versions, and apply what is found",
		Long: `Read the topic again for the versions that orders wait for, and decide what is found: it is applied, what is parked
behind it follows. What lies above the watermark comes by itself and is left alone. --all takes every gap, --overdue
those past their deadline. It is a dry run unless --execute is given.

Exit code 1 when some order still waits.`,
		Args: cobra.ArbitraryArgs,
	}
	addOperatorFlags(cmd)
	out := addOutputFlag(cmd)
	byFlags := addByFlags(cmd, false)
	execute := addExecuteFlag(cmd)
	all := cmd.Flags().Bool("all", false, "every gap")
	overdue := cmd.Flags().Bool("overdue", false, "every gap past its deadline")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if (len(args) > 0) == (*all || *overdue) {
			return usageError("name orders, or give --all or --overdue")
		}
		by, err := byFlags.by()
		if err != nil {
			return err
		}
		return env.withOperator(cmd, kafkaRequired, func(ctx context.Context, o *operating) error {
			view := []repairedGap{}
			left := 0
			for after := ""; ; {
				ids, more := args, false
				if len(args) == 0 {
					gaps, rest, err := o.reader.Gaps(ctx, pgstore.GapFilter{Overdue: *overdue, After: after, Limit: repairAtOnce})
					if err != nil {
						return err
					}
					ids, more = nil, rest
					for _, g := range gaps {
						ids, after = append(ids, g.OrderID), g.OrderID
					}
				}
				results, failed, err := o.operator.RepairGaps(ctx, ids, *execute, by)
				if err != nil {
					return err
				}
				for _, id := range slices.Sorted(maps.Keys(results)) {
					view = append(view, repairedGap{OrderID: id, GapResult: results[id]})
					if results[id].After.Status != projection.StatusOK {
						left++
					}
				}
				for _, id := range slices.Sorted(maps.Keys(failed)) {
					left++
					view = append(view, repairedGap{OrderID: id, Error: withHint(failed[id])})
				}
				if len(args) == 1 && len(failed) == 1 {
					return failed[args[0]]
				}
				if !more {
					break
				}
			}
			if err := out.print(env.Stdout, view, func(t *tableWriter) { repairTable(t, view) }); err != nil {
				return err
			}
			env.sayDryRun(*execute)
			if left > 0 {
				return fmt.Errorf("%d of %d orders still wait", left, len(view))
			}
			return nil
		})
	}
	return cmd
}

// withHint is an error's text with what it advises.
func withHint(err error) string {
	text := err.Error()
	if hints := hintsFor(err); len(hints) > 0 {
		text += " (" + strings.Join(hints, "; ") + ")"
	}
	return text
}

func repairTable(t *tableWriter, view []repairedGap) {
	t.row("ORDER", "FOUND", "BEFORE", "AFTER", "DETAIL")
	for _, r := range view {
		if r.Error != "" {
			t.row(r.OrderID, "-", "-", "-", r.Error)
			continue
		}
		var found, detail []string
		for _, f := range r.Found {
			found = append(found, fmt.Sprintf("version %d %s", f.Version, f.Outcome))
			if f.Detail != "" {
				detail = append(detail, f.Detail)
			}
		}
		t.row(r.OrderID, strings.Join(found, ", "), standingCell(&r.Before), standingCell(&r.After), strings.Join(detail, "; "))
	}
}

func newGapsAcceptCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "accept ORDER_ID --versions A-B --comment TEXT",
		Short: "Decide that missing versions never come, and go on without them",
		Long: `Decide that missing versions never come: they are recorded as skipped, and what is parked behind them is decided. What
that makes of the parked events is shown first: it is a dry run unless --execute is given. "decisions undo" takes it back.`,
		Example: `  orderprojector gaps accept o-1001 --versions 4-5 --comment "lost with the old cluster" --execute`,
		Args:    cobra.ExactArgs(1),
	}
	addOperatorFlags(cmd)
	out := addOutputFlag(cmd)
	byFlags := addByFlags(cmd, false)
	execute := addExecuteFlag(cmd)
	versions := cmd.Flags().String("versions", "", "which versions: 4, or 4-7 (required)")
	if err := cmd.MarkFlagRequired("versions"); err != nil {
		panic(err) // the flag is added above
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		from, to, err := parseVersions(*versions)
		if err != nil {
			return err
		}
		by, err := byFlags.by()
		if err != nil {
			return err
		}
		return env.withOperator(cmd, kafkaOptional, func(ctx context.Context, o *operating) error {
			result, err := o.operator.AcceptGap(ctx, args[0], from, to, *execute, by)
			if err != nil {
				return err
			}
			view := struct {
				Executed bool `json:"executed"`
				projection.GapResult
			}{*execute, result}
			if err := out.print(env.Stdout, view, func(t *tableWriter) {
				t.field("order", result.Before.OrderID)
				t.field("skipped", rangeCell(from, to))
				t.field("before", standingCell(&result.Before))
				t.field("after", standingCell(&result.After))
				if *execute {
					t.field("decision", strconv.FormatInt(result.DecisionID, 10))
				}
				cascadeTable(t, "WHAT BECOMES OF THE EVENTS PARKED BEHIND THEM", result.Drained)
			}); err != nil {
				return err
			}
			env.sayDryRun(*execute)
			return nil
		})
	}
	return cmd
}

// parseVersions reads 4 or 4-7.
func parseVersions(text string) (from, to int64, err error) {
	first, last, isRange := strings.Cut(text, "-")
	if !isRange {
		last = first
	}
	from, errFrom := strconv.ParseInt(first, 10, 64)
	to, errTo := strconv.ParseInt(last, 10, 64)
	if errors.Join(errFrom, errTo) != nil || from < 1 || to < from {
		return 0, 0, usageError("--versions %q is neither a version nor a range such as 4-7", text)
	}
	return from, to, nil
}
