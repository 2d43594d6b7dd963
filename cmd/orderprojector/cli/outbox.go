package cli

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	outboxstore "github.com/orderprojector/orderprojector/outbox/pgstore"
)

func newOutboxCommand(env *Env) *cobra.Command {
	return newGroup("outbox", "Look at messages that wait to be published, and decide about those that cannot be",
		newOutboxStatusCommand(env), newOutboxListCommand(env), newOutboxRetryCommand(env), newOutboxDiscardCommand(env), newOutboxRestoreCommand(env))
}

// withOutbox opens the outbox of a database, which may be one that orderprojector does not migrate.
func (env *Env) withOutbox(cmd *cobra.Command, act func(context.Context, *outboxstore.Store) error) error {
	cfg, err := env.loadConfig(cmd, config.SectionDatabase)
	if err != nil {
		return err
	}
	pool, err := app.OpenPool(cmd.Context(), cfg.Database, app.OutboxPool, 1)
	if err != nil {
		return err
	}
	defer pool.Close()
	// The server's own timeout does not help when the network swallows its answer.
	ctx, cancel := context.WithTimeout(cmd.Context(), 2*(cfg.Database.ConnectTimeout+cfg.Database.StatementTimeout))
	defer cancel()
	if err := app.CheckOutbox(ctx, pool); err != nil {
		return err
	}
	err = act(ctx, outboxstore.New(pool))
	var missing *outboxstore.NotFoundError
	if errors.As(err, &missing) {
		return &Error{Code: ExitNotFound, Err: err, Advice: "it is published, perhaps: see orderprojector outbox list --all, and --discarded"}
	}
	return err
}

func newOutboxStatusCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Print how the outbox stands: unpublished, blocked and discarded messages, and who publishes",
		Args:  cobra.NoArgs,
	}
	addConfigFlags(cmd, config.SectionDatabase)
	out := addOutputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return env.withOutbox(cmd, func(ctx context.Context, store *outboxstore.Store) error {
			status, err := store.Status(ctx)
			if err != nil {
				return err
			}
			return out.print(env.Stdout, status, func(t *tableWriter) { outboxStatusTable(t, status) })
		})
	}
	return cmd
}

func outboxStatusTable(t *tableWriter, s outboxstore.Status) {
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	t.field("unpublished", countSinceCell(s.Unpublished, s.OldestSeconds))
	t.field("blocked messages", number(s.BlockedMessages))
	t.field("blocked orders", fmt.Sprintf("%d, with %d messages behind the blocked ones", s.BlockedOrders, s.BehindBlocked))
	t.field("retrying", number(s.RetryingMessages))
	t.field("discarded", number(s.DiscardedMessages))
	relay := "none: start one with orderprojector run relay"
	if r := s.Relay; r != nil {
		relay = fmt.Sprintf("database session %d (%s, from %s) since %s", r.PID, r.Application, r.Address, r.Since.UTC().Format(time.RFC3339))
	}
	t.field("relay", relay)
}
