package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func newResumeCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "resume --comment TEXT",
		Short: "Resume the consumption of a group that was paused, and close its breaker",
		Long: `Resume the consumption of a group. It ends an operator's pause, closes the breaker
and makes it judge from here on; all members go on within two seconds where they stopped.`,
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionDatabase)
	addSettingFlags(cmd, "group")
	flags := addByFlags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		by, err := flags.by()
		if err != nil {
			return err
		}
		return env.withStore(cmd, func(ctx context.Context, cfg config.Config, store *pgstore.Store) error {
			before, err := store.Resume(ctx, cfg.Kafka.Group, by)
			if err != nil {
				return err
			}
			if p := before.Pause; p != nil {
				fmt.Fprintf(env.Stdout, "group %s is resumed: it was paused by %s since %s\n", cfg.Kafka.Group, p.Actor, p.Since.UTC().Format(time.RFC3339))
			}
			if b := before.Breaker; b != nil {
				fmt.Fprintf(env.Stdout, "the breaker of group %s is closed: it was open since %s\n", cfg.Kafka.Group, b.Since.UTC().Format(time.RFC3339))
			}
			return nil
		})
	}
	return cmd
}
