package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

func newOrdersCommand(env *Env) *cobra.Command {
	return newGroup("orders", "Look at projected orders",
		newOrdersGetCommand(env), newOrdersListCommand(env), newOrdersTimelineCommand(env),
		newOrdersAsOfCommand(env), newOrdersDiffCommand(env))
}

// withReader runs a question against the database, whose schema it checks first.
func (env *Env) withReader(cmd *cobra.Command, ask func(context.Context, *pgstore.Reader) error) error {
	cfg, err := env.loadConfig(cmd, config.SectionDatabase)
	if err != nil {
		return err
	}
	pool, err := app.OpenPool(cmd.Context(), cfg.Database, app.ReadPool, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	reader := pgstore.NewReader(pool)
	want, err := app.SchemaVersion()
	if err != nil {
		return err
	}
	// The server's own timeout does not help when the network swallows its answer.
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*(cfg.Database.ConnectTimeout+cfg.Database.StatementTimeout))
	defer cancel()
	if err := reader.CheckSchema(ctx, want, cfg.Database.AllowNewerSchema); err != nil {
		return err
	}
	return ask(ctx, reader)
}
