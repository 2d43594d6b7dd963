package cli

import (
	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
)

// addConfigFlags adds the flags of the sections to a command. The settings
// themselves can be set in every way; a command only shows those it uses.
func addConfigFlags(cmd *cobra.Command, sections ...config.Section) {
	config.AddFlags(cmd.Flags(), sections...)
}

// loadConfig reads the configuration and validates the sections that the
// command uses. Logging always belongs to them.
func (env *Env) loadConfig(cmd *cobra.Command, sections ...config.Section) (config.Config, error) {
	cfg, err := env.readConfig(cmd)
	if err == nil {
		err = cfg.Validate(append(sections, config.SectionLog)...)
	}
	if err != nil {
		return cfg, &Error{Code: ExitUsage, Err: err}
	}
	return cfg, nil
}

func (env *Env) readConfig(cmd *cobra.Command) (config.Config, error) {
	return config.Load(config.Sources{Flags: cmd.Flags(), LookupEnv: env.LookupEnv})
}
