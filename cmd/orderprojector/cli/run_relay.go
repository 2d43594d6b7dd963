package cli

import (
	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
)

func newRunRelayCommand(env *Env) *cobra.Command {
	sections := []config.Section{config.SectionKafka, config.SectionDatabase, config.SectionOutbox, config.SectionHTTP, config.SectionProcess}
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Publish the messages of an outbox, until told to stop",
		Long: `Publish the messages that order services stored in the outbox to the topic: per order in the
order of the versions, at least once, each with a stable event ID. Of several relays on one
database one publishes; the others stand by and take over.

The outbox tables must be there: see "migrate up".`,
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd, sections...)
	addSettingFlags(cmd, "topic")
	if flag := cmd.Flags().Lookup("http-address"); flag != nil {
		flag.DefValue = config.DefaultRelayHTTPAddress
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := env.loadConfig(cmd, append(sections, config.SectionGroup)...)
		if err != nil {
			return err
		}
		logger := env.serverLogger(cfg.Log)
		env.logSettings(cfg, logger)
		limitMemory(cfg)
		program, err := app.NewRelay(cmd.Context(), cfg, logger)
		if err != nil {
			return err
		}
		return program.Run(cmd.Context())
	}
	return cmd
}
