package cli

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func newDLQListCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List dead letters, by ID",
		Long:  "List dead letters of the group, by ID: those that wait for somebody, unless --status says otherwise.",
		Args:  cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionDatabase)
	addSettingFlags(cmd, "group", "topic")
	out := addOutputFlag(cmd)
	filter := addLetterFilterFlags(cmd)
	after := cmd.Flags().Int64("after", 0, "only letters of a higher ID")
	limit := cmd.Flags().Int("limit", 50, fmt.Sprintf("at most so many, up to %d", maxListLimit))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		f, err := filter.get(cmd)
		if err != nil {
			return err
		}
		f.After, f.Limit = *after, *limit
		if f.Limit < 1 || f.Limit > maxListLimit {
			return usageError("--limit %d is not between 1 and %d", f.Limit, maxListLimit)
		}
		return env.withGroupReader(cmd, func(ctx context.Context, group string, reader *pgstore.Reader) error {
			letters, more, err := reader.Letters(ctx, group, f)
			if err != nil {
				return err
			}
			if err := out.print(env.Stdout, letters, func(t *tableWriter) { lettersTable(t, letters) }); err != nil {
				return err
			}
			if more {
				fmt.Fprintf(env.Stderr, "there are more: --after %d\n", letters[len(letters)-1].ID)
			}
			return nil
		})
	}
	return cmd
}

// withGroupReader is withReader with the group's name.
func (env *Env) withGroupReader(cmd *cobra.Command, ask func(context.Context, string, *pgstore.Reader) error) error {
	cfg, err := env.loadConfig(cmd, config.SectionDatabase, config.SectionGroup)
	if err != nil {
		return err
	}
	return env.withReader(cmd, func(ctx context.Context, reader *pgstore.Reader) error { return ask(ctx, cfg.Kafka.Group, reader) })
}

func lettersTable(t *tableWriter, letters []pgstore.LetterView) {
	t.row("ID", "STATUS", "REASON", "ORDER", "VERSION", "TYPE", "ATTEMPTS", "FIRST FAILED", "OWNER", "DUE", "DETAIL")
	for _, l := range letters {
		status := l.Status
		if l.Blocking {
			status += ", blocks"
		}
		due := timeCell(&l.DueAt)
		if l.Overdue {
			due += " overdue"
		}
		t.row(strconv.FormatInt(l.ID, 10), status, l.Reason, optionalCell(l.OrderID), versionCell(l.Version), optionalCell(l.Type),
			strconv.Itoa(int(l.Attempts)), timeCell(&l.FirstFailedAt), optionalCell(l.Owner), due, clipCell(l.Detail, 80))
	}
}

// clipCell shortens a text that would make a table too wide.
func clipCell(s string, most int) string {
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}
	return string(runes[:most-3]) + "..."
}
