package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func newAuditCommand(env *Env) *cobra.Command {
	return newGroup("audit", "Look at what operators did", newAuditListCommand(env))
}

func newAuditListCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List what operators did, the newest first: who, when, what, why, before and after",
		Args:  cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	var filter pgstore.AuditFilter
	var since, until timeValue
	flags := cmd.Flags()
	flags.StringVar(&filter.Action, "action", "", "only this action, or this group of actions: dlq.discard, or dlq")
	flags.StringVar(&filter.Target, "target", "", `only what was done to this: "dead_letter 17", "order o-1"`)
	// --actor of actions says who acts; here it asks who acted.
	flags.StringVar(&filter.Actor, "actor", "", "only what this one did")
	flags.Var(&since, "since", "only what was done then or later: an RFC 3339 time, or a duration back such as 2h or 7d")
	flags.Var(&until, "until", "only what was done before then")
	flags.Int64Var(&filter.Below, "below", 0, "only entries of a lower ID")
	flags.IntVar(&filter.Limit, "limit", 50, fmt.Sprintf("at most so many, up to %d", maxListLimit))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if filter.Limit < 1 || filter.Limit > maxListLimit {
			return usageError("--limit %d is not between 1 and %d", filter.Limit, maxListLimit)
		}
		filter.Since, filter.Until = since.at, until.at
		return env.withReader(cmd, func(ctx context.Context, reader *pgstore.Reader) error {
			entries, more, err := reader.Audit(ctx, filter)
			if err != nil {
				return err
			}
			if err := out.print(env.Stdout, entries, func(t *tableWriter) {
				t.row("ID", "AT", "ACTOR", "ACTION", "TARGET", "COMMENT", "BEFORE", "AFTER")
				for _, e := range entries {
					t.row(strconv.FormatInt(e.ID, 10), timeCell(&e.At), e.Actor, e.Action, e.Target, textCell(e.Comment),
						clipCell(textCell(string(e.Before)), 80), clipCell(textCell(string(e.After)), 80))
				}
			}); err != nil {
				return err
			}
			if more {
				fmt.Fprintf(env.Stderr, "there are more: --below %d\n", entries[len(entries)-1].ID)
			}
			return nil
		})
	}
	return cmd
}
