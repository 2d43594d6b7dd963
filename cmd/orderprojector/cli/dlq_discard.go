package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/projection"
)

func newDLQDiscardCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "discard ID... --comment TEXT",
		Short: "Close dead letters that nobody will decide again",
		Long: `Close dead letters that nobody will decide again. Their bytes are kept until "dlq purge", and "dlq restore" opens them.

A letter that holds its order back is refused: its order would wait for ever. --skip passes its version instead, by a
decision that stands until "decisions undo". What that makes of the events parked behind it is shown
first, because skipping a payment makes what follows illegal: it is a dry run unless --execute is given.`,
		Example: `  orderprojector dlq discard 17 --comment "a test record of the load generator"
  orderprojector dlq discard 18 --skip --comment "never happened, see ticket 4"
  orderprojector dlq discard 18 --skip --comment "never happened, see ticket 4" --execute`,
		Args: cobra.MinimumNArgs(1),
	}
	addOperatorFlags(cmd)
	out := addOutputFlag(cmd)
	by := addByFlags(cmd, false)
	skip := cmd.Flags().Bool("skip", false, "pass the versions of letters that hold their orders back")
	execute := cmd.Flags().Bool("execute", false, "really skip (without --skip a letter is discarded at once: it can be restored)")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := parseIDs(args)
		if err != nil {
			return err
		}
		req := projection.DiscardRequest{Skip: *skip, Execute: *execute || !*skip}
		if req.By, err = by.by(); err != nil {
			return err
		}
		return env.withOperator(cmd, kafkaOptional, func(ctx context.Context, o *operating) error {
			results := []projection.DiscardResult{}
			var failed error
			for _, id := range ids {
				result, err := o.operator.Discard(ctx, id, req)
				if err != nil {
					failed = err
					break
				}
				if !req.Execute {
					result.DecisionID = 0 // it was rolled back
				}
				results = append(results, result)
			}
			if len(results) > 0 {
				view := struct {
					Executed bool                       `json:"executed"`
					Letters  []projection.DiscardResult `json:"letters"`
				}{req.Execute, results}
				if err := out.print(env.Stdout, view, func(t *tableWriter) { discardTable(t, results) }); err != nil {
					return err
				}
			}
			if failed != nil {
				return failed
			}
			env.sayDryRun(req.Execute)
			return nil
		})
	}
	return cmd
}

func discardTable(t *tableWriter, results []projection.DiscardResult) {
	t.row("ID", "WAS", "SKIPPED VERSION", "DECISION", "ORDER", "BEFORE", "AFTER")
	for _, r := range results {
		skipped, decision, order := "-", "-", "-"
		if r.Skipped != 0 {
			skipped = strconv.FormatInt(r.Skipped, 10)
		}
		if r.DecisionID != 0 {
			decision = strconv.FormatInt(r.DecisionID, 10)
		}
		if r.Before != nil {
			order = r.Before.OrderID
		}
		was := string(r.Was)
		if r.Already {
			was += " already"
		}
		t.row(strconv.FormatInt(r.LetterID, 10), was, skipped, decision, order, standingCell(r.Before), standingCell(r.After))
	}
	for _, r := range results {
		if r.Skipped != 0 {
			cascadeTable(t, fmt.Sprintf("WHAT BECOMES OF THE EVENTS PARKED BEHIND LETTER %d", r.LetterID), r.Cascade)
		}
	}
}

func newDLQRestoreCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore ID... --comment TEXT",
		Short: "Open discarded letters again",
		Long: `Open discarded letters again. One whose version was skipped is refused: "decisions undo" takes the skip back, and
opens the letter.`,
		Args: cobra.MinimumNArgs(1),
	}
	addOperatorFlags(cmd)
	byFlags := addByFlags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := parseIDs(args)
		if err != nil {
			return err
		}
		by, err := byFlags.by()
		if err != nil {
			return err
		}
		return env.withOperator(cmd, kafkaOptional, func(ctx context.Context, o *operating) error {
			for _, id := range ids {
				if _, err := o.operator.Restore(ctx, id, by); err != nil {
					return err
				}
				fmt.Fprintf(env.Stdout, "dead letter %d is open\n", id)
			}
			return nil
		})
	}
	return cmd
}
