package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func newDLQGroupCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "group",
		Short: "Count dead letters by reason, cause and event type",
		Long: `Count dead letters by reason, cause and event type, the largest groups first. The cause is
the letter's detail without what differs from one letter to the next.`,
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionDatabase)
	addSettingFlags(cmd, "group", "topic")
	out := addOutputFlag(cmd)
	filter := addLetterFilterFlags(cmd)
	limit := cmd.Flags().Int("limit", 50, "at most so many groups")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f, err := filter.get(cmd)
		if err != nil {
			return err
		}
		if f.Limit = *limit; f.Limit < 1 || f.Limit > maxListLimit {
			return usageError("--limit %d is not between 1 and %d", f.Limit, maxListLimit)
		}
		return env.withGroupReader(cmd, func(ctx context.Context, group string, reader *pgstore.Reader) error {
			groups, err := reader.LetterGroups(ctx, group, f)
			if err != nil {
				return err
			}
			return out.print(env.Stdout, groups, func(t *tableWriter) {
				t.row("LETTERS", "ORDERS", "BLOCKING", "REASON", "TYPE", "OLDEST", "NEWEST", "EXAMPLE", "CAUSE")
				for _, g := range groups {
					t.row(strconv.FormatInt(g.Letters, 10), strconv.FormatInt(g.Orders, 10), strconv.FormatInt(g.Blocking, 10), g.Reason, textCell(g.Type),
						timeCell(&g.Oldest), timeCell(&g.Newest), strconv.FormatInt(g.Example, 10), g.Cause)
				}
			})
		})
	}
	return cmd
}
