package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/projection"
)

func newHeldGiveUpCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "give-up ID...",
		Short: "Make held records dead letters",
		Long: `Make held records dead letters, all in one transaction. Only the head of a queue can be given up: otherwise later records of its order
would overtake it. Behind the head, the next record of the order is tried.

The letter of a record of the projection holds its order back while its version is the next one; dlq redrive, and dlq discard --skip, lead
on from there. It is a dry run unless --execute is given, which needs --comment.`,
		Example: `  orderprojector held give-up 17
  orderprojector held give-up 17 --execute --comment "the row is beyond repair, ticket 8"`,
		Args: cobra.MinimumNArgs(1),
	}
	addOperatorFlags(cmd)
	out := addOutputFlag(cmd)
	byFlags := addByFlags(cmd, true)
	execute := addExecuteFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ids, err := parseIDs(args)
		if err != nil {
			return err
		}
		byFlags.optional = !*execute
		req := projection.GiveUpRequest{Execute: *execute}
		if req.By, err = byFlags.by(); err != nil {
			return err
		}
		return env.withOperator(cmd, kafkaOptional, func(ctx context.Context, o *operating) error {
			consumer, err := o.store.ConsumerOf(ctx, o.group())
			if err != nil {
				return err
			}
			req.Blocks = consumer == ""
			given, err := o.operator.GiveUpHeld(ctx, ids, req)
			if err != nil {
				return err
			}
			view := struct {
				Executed bool                `json:"executed"`
				Records  []projection.GaveUp `json:"records"`
			}{req.Execute, given}
			if err := out.print(env.Stdout, view, func(t *tableWriter) { gaveUpTable(t, given) }); err != nil {
				return err
			}
			env.sayDryRun(req.Execute)
			return nil
		})
	}
	return cmd
}

func gaveUpTable(t *tableWriter, given []projection.GaveUp) {
	t.row("ID", "ORDER", "VERSION", "BLOCKS", "FAILURES", "BEHIND IT", "CAUSE")
	for _, g := range given {
		version, blocks := &g.Version, "no"
		if g.Version == 0 {
			version = nil
		}
		if g.Blocks {
			blocks = "yes"
		}
		t.row(strconv.FormatInt(g.ID, 10), textCell(g.OrderID), versionCell(version), blocks, strconv.Itoa(g.Failures),
			strconv.FormatInt(g.Behind, 10), clipCell(g.Cause, 80))
	}
}
