package cli

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
)

func newConfigCommand(env *Env) *cobra.Command {
	return newGroup("config", "Look at the configuration", newConfigPrintCommand(env))
}

func newConfigPrintCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "print",
		Short: "Print every setting with its value and where that came from",
		Long: `Print every setting with its value and where that came from. Secrets are
redacted. What would keep "run" from starting is said on standard error.`,
		Args: cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionKafka, config.SectionGroup, config.SectionDatabase, config.SectionProjection,
		config.SectionHTTP, config.SectionProcess)
	out := addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := env.readConfig(cmd)
		if err != nil {
			return &Error{Code: ExitUsage, Err: err}
		}
		if err := cfg.Validate(); err != nil {
			fmt.Fprintln(env.Stderr, "not valid for run:", err)
		}
		values := cfg.Values()
		return out.print(env.Stdout, values, func(t *tableWriter) {
			t.row("SETTING", "VALUE", "ORIGIN")
			for _, v := range values {
				t.row(v.Name, textCell(v.Value), string(v.Origin))
			}
		})
	}
	return cmd
}

// addConfigFileFlag adds --config to every command.
func addConfigFileFlag(root *cobra.Command) {
	root.PersistentFlags().String(config.FileFlag, "", "YAML file with settings ["+config.FileEnv+"]")
}
