package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func newPauseCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pause --comment TEXT",
		Short: "Pause the consumption of a group, until it is resumed",
		Long: `Pause the consumption of a group. It is stored: all members follow within two
seconds, and it outlives restarts. Batches in flight finish; nothing is skipped and
nothing is lost; the members stay in their group. "status" says who paused it and why.`,
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
			if _, err := store.Pause(ctx, cfg.Kafka.Group, by); err != nil {
				return err
			}
			fmt.Fprintf(env.Stdout, "group %s is paused\n", cfg.Kafka.Group)
			if known, err := store.GroupKnown(ctx, cfg.Kafka.Group); err == nil && !known {
				fmt.Fprintf(env.Stderr, "no member of group %s has consumed into this database yet: is --group right?\n", cfg.Kafka.Group)
			}
			return nil
		})
	}
	return cmd
}

// addSettingFlags adds the flags of single settings.
func addSettingFlags(cmd *cobra.Command, names ...string) {
	config.AddSettingFlags(cmd.Flags(), names...)
}

// withStore runs an action on the database, whose schema it checks first.
func (env *Env) withStore(cmd *cobra.Command, act func(context.Context, config.Config, *pgstore.Store) error) error {
	cfg, err := env.loadConfig(cmd, config.SectionDatabase, config.SectionGroup)
	if err != nil {
		return err
	}
	pool, err := app.OpenPool(cmd.Context(), cfg.Database, app.WritePool, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	want, err := app.SchemaVersion()
	if err != nil {
		return err
	}
	// The server's own timeout does not help when the network swallows its answer.
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*(cfg.Database.ConnectTimeout+cfg.Database.StatementTimeout))
	defer cancel()
	if err := pgstore.NewReader(pool).CheckSchema(ctx, want, cfg.Database.AllowNewerSchema); err != nil {
		return err
	}
	return act(ctx, cfg, pgstore.New(pool))
}
