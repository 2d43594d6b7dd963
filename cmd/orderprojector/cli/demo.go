package cli

import (
	"io"
	"log/slog"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/demo"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/progress"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func newDemoCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Project faulty traffic through services of its own, and check every row",
		Long: `Start an in-process Kafka and a throwaway PostgreSQL, publish faulty order traffic,
project it, and compare every row and every count with an independent fold of
the topic. Beside that an order service takes commands, whose events go through outbox and relay to the projector, loyalty points
and notifications; all three are compared with the service's own tables. It needs no configuration and no services. If all agrees
it prints "verified".`,
		Args: cobra.NoArgs,
	}
	var c demo.Config
	flags := cmd.Flags()
	flags.IntVar(&c.Orders, "orders", 10_000, "number of orders")
	flags.IntVar(&c.Partitions, "partitions", 4, "partitions of the topic")
	flags.Uint64Var(&c.Seed, "seed", 1, "seed of the traffic")
	flags.BoolVar(&c.Serve, "serve", false, "stay up afterwards, and say how to reach everything")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := env.loadConfig(cmd)
		if err != nil {
			return err
		}
		if c.Orders < 1 || c.Partitions < 1 {
			return usageError("--orders and --partitions must be positive")
		}
		if !cfg.Explicit("log-level") {
			cfg.Log.Level = slog.LevelWarn // the demonstration itself says what happens
		}
		c.Logger = env.logger(cfg.Log)
		c.Progress = progress.New(env.Stderr, isTerminal(env.Stderr))
		c.PrintTimeline = func(w io.Writer, timeline pgstore.Timeline) error {
			table := output{format: "table"}
			return table.print(w, timeline, func(t *tableWriter) { timelineTable(t, timeline) })
		}
		return demo.Run(cmd.Context(), c, env.Stdout)
	}
	return cmd
}
