package cli

import (
	"log/slog"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
)

func newRunCommand(env *Env) *cobra.Command {
	sections := []config.Section{
		config.SectionKafka, config.SectionGroup, config.SectionDatabase, config.SectionProjection, config.SectionHTTP, config.SectionProcess,
	}
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Consume the topic and project it, until told to stop",
		Long: `Join the consumer group, apply the topic's events to the database, and serve
health and metrics over HTTP. The schema must be there: see "migrate up".

SIGTERM or SIGINT finishes what is in flight, commits and leaves the group
within --shutdown-grace; a second signal exits at once.`,
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd, sections...)
	cmd.AddCommand(newRunRelayCommand(env), newRunLoyaltyCommand(env), newRunNotificationsCommand(env))
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := env.loadConfig(cmd, sections...)
		if err != nil {
			return err
		}
		logger := env.serverLogger(cfg.Log)
		env.logSettings(cfg, logger)
		limitMemory(cfg)
		program, err := app.New(cmd.Context(), cfg, logger)
		if err != nil {
			return err
		}
		return program.Run(cmd.Context())
	}
	return cmd
}

// limitMemory tells the garbage collector when to collect.
func limitMemory(cfg config.Config) {
	if cfg.MemoryLimit <= 0 {
		return
	}
	debug.SetMemoryLimit(int64(cfg.MemoryLimit))
	if _, given := os.LookupEnv("GOGC"); !given {
		debug.SetGCPercent(400) // the limit decides: collecting earlier cost a fifth of the processor time
	}
}

// logSettings says what was configured, and what of it looks like a mistake.
func (env *Env) logSettings(cfg config.Config, logger *slog.Logger) {
	for _, v := range cfg.Values() {
		if cfg.Explicit(v.Name) {
			logger.Debug("setting", "name", v.Name, "value", v.Value, "origin", string(v.Origin))
		}
	}
	for _, warning := range cfg.Warnings() {
		logger.Warn(warning)
	}
	if env.Environ == nil {
		return
	}
	for _, name := range config.UnknownEnvironment(env.Environ()) {
		logger.Warn("an environment variable looks like a setting, but is none", "name", name)
	}
}
