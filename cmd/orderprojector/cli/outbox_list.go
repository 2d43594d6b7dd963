package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	outboxstore "github.com/orderprojector/orderprojector/outbox/pgstore"
)

func newOutboxListCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List messages that cannot be published, by their number",
		Long: `List messages of the outbox, by their number: those that were refused, unless --all or
--discarded says otherwise. JSON and YAML show the whole messages.`,
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	flags := cmd.Flags()
	filter := outboxstore.Filter{Kind: outboxstore.KindFailed}
	all := flags.Bool("all", false, "everything that is not published yet")
	discarded := flags.Bool("discarded", false, "what operators gave up")
	flags.StringVar(&filter.Order, "order", "", "only messages of this order")
	flags.Int64Var(&filter.After, "after", 0, "only messages of a higher number")
	flags.IntVar(&filter.Limit, "limit", 50, fmt.Sprintf("at most so many, up to %d", maxListLimit))
	cmd.MarkFlagsMutuallyExclusive("all", "discarded")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case filter.Limit < 1 || filter.Limit > maxListLimit:
			return usageError("--limit %d is not between 1 and %d", filter.Limit, maxListLimit)
		case *all:
			filter.Kind = outboxstore.KindAll
		case *discarded:
			filter.Kind = outboxstore.KindDiscarded
		}
		return env.withOutbox(cmd, func(ctx context.Context, store *outboxstore.Store) error {
			messages, more, err := store.List(ctx, filter)
			if err != nil {
				return err
			}
			if err := out.print(env.Stdout, messages, func(t *tableWriter) { outboxTable(t, messages) }); err != nil {
				return err
			}
			if more {
				fmt.Fprintf(env.Stderr, "there are more: --after %d\n", messages[len(messages)-1].Seq)
			}
			return nil
		})
	}
	return cmd
}

func outboxTable(t *tableWriter, messages []outboxstore.MessageView) {
	t.row("MESSAGE", "STATUS", "ORDER", "VERSION", "TYPE", "EVENT", "STORED", "ATTEMPTS", "REASON", "DETAIL")
	for _, m := range messages {
		attempts, detail := "-", optionalCell(m.Detail)
		if m.Attempts != nil {
			attempts = strconv.Itoa(int(*m.Attempts))
		}
		t.row(strconv.FormatInt(m.Seq, 10), m.Status, m.OrderID, strconv.FormatInt(m.Version, 10), m.Type, m.EventID, timeCell(&m.CreatedAt),
			attempts, optionalCell(m.Reason), clipCell(detail, 80))
	}
}
