package cli

import (
	"context"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
)

func newRunLoyaltyCommand(env *Env) *cobra.Command {
	return newRunConsumerCommand(env, &cobra.Command{
		Use:   "loyalty",
		Short: "Keep customers' points, until told to stop",
		Long: `Join the consumer group --loyalty-group and keep the points ledger: one point per whole unit of a currency that
is paid and not refunded, whatever the order in which the events come, and once per payment and refund, however
many events tell of it. It knows the events alone; "points check" compares with the orders.

The schema must be there: see "migrate up".`,
	}, config.SectionLoyalty, config.DefaultLoyaltyHTTPAddress, app.NewLoyalty)
}

// newRunConsumerCommand makes the command of a consumer beside the projector.
func newRunConsumerCommand(env *Env, cmd *cobra.Command, own config.Section, address string,
	build func(context.Context, config.Config, *slog.Logger) (*app.App, error),
) *cobra.Command {
	sections := []config.Section{config.SectionKafka, config.SectionDatabase, own, config.SectionHTTP, config.SectionProcess}
	cmd.Args = cobra.NoArgs
	addConfigFlags(cmd, sections...)
	addSettingFlags(cmd, "topic", "group-protocol", "instance-id", "session-timeout", "on-data-loss", "dead-letter-topic",
		"writers", "batch-max-records", "batch-max-bytes", "breaker")
	if flag := cmd.Flags().Lookup("http-address"); flag != nil {
		flag.DefValue = address
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := env.loadConfig(cmd, append(sections, config.SectionGroup, config.SectionProjection)...)
		if err != nil {
			return err
		}
		logger := env.serverLogger(cfg.Log)
		env.logSettings(cfg, logger)
		limitMemory(cfg)
		program, err := build(cmd.Context(), cfg, logger)
		if err != nil {
			return err
		}
		return program.Run(cmd.Context())
	}
	return cmd
}
