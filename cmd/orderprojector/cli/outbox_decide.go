package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	outboxstore "github.com/orderprojector/orderprojector/outbox/pgstore"
	"github.com/orderprojector/orderprojector/projection"
)

func newOutboxRetryCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "retry (MESSAGE... | --all)",
		Short: "Have blocked messages tried again, such as after the topic takes larger records",
		Long: `Have blocked messages tried again: those of the numbers that "outbox list" shows, or all. Their
orders go on as soon as they are published.`,
		Example: `  orderprojector outbox retry 17 --comment "max.message.bytes is 4 MiB now"
  orderprojector outbox retry --all`,
	}
	addConfigFlags(cmd, config.SectionDatabase)
	byFlags := addByFlags(cmd, true)
	all := cmd.Flags().Bool("all", false, "every blocked message")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		seqs, err := parseIDs(args)
		if err != nil {
			return err
		}
		if *all == (len(seqs) > 0) {
			return usageError("name messages, or --all")
		}
		by, err := byFlags.by()
		if err != nil {
			return err
		}
		return env.withOutbox(cmd, func(ctx context.Context, store *outboxstore.Store) error {
			if *all {
				if seqs, err = store.Blocked(ctx); err != nil {
					return err
				}
			}
			if err := store.Retry(ctx, seqs, by); err != nil {
				return err
			}
			for _, seq := range seqs {
				fmt.Fprintf(env.Stdout, "message %d is tried again\n", seq)
			}
			return nil
		})
	}
	return cmd
}

func newOutboxDiscardCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "discard MESSAGE... --comment TEXT",
		Short: "Give blocked messages up, so that their orders go on without them",
		Long: `Give blocked messages up, so that their orders go on without them. They are kept, whole: "outbox list
--discarded" shows them, and "outbox restore" has them published after all.

Consumers will miss the versions: orderprojector holds those orders back until "gaps accept".`,
		Args: cobra.MinimumNArgs(1),
	}
	addConfigFlags(cmd, config.SectionDatabase)
	byFlags := addByFlags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		err := env.decideMessages(cmd, args, byFlags, func(ctx context.Context, store *outboxstore.Store, seq int64, by projection.By) error {
			m, err := store.Discard(ctx, seq, by)
			if err == nil {
				fmt.Fprintf(env.Stdout, "message %d is discarded: order %s goes on without version %d\n", seq, printable(m.OrderID), m.Version)
			}
			return err
		})
		if err == nil {
			fmt.Fprintln(env.Stderr, "consumers wait for the versions that they miss: see orderprojector gaps accept --help")
		}
		return err
	}
	return cmd
}

func newOutboxRestoreCommand(env *Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "restore MESSAGE... --comment TEXT",
		Short: "Put discarded messages back, to be published after all",
		Long: `Put discarded messages back, to be published after all. Later versions of their orders may be in the topic
already: consumers that keep events that came too early, as orderprojector does, go on then.`,
		Args: cobra.MinimumNArgs(1),
	}
	addConfigFlags(cmd, config.SectionDatabase)
	byFlags := addByFlags(cmd, false)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return env.decideMessages(cmd, args, byFlags, func(ctx context.Context, store *outboxstore.Store, seq int64, by projection.By) error {
			err := store.Restore(ctx, seq, by)
			if err == nil {
				fmt.Fprintf(env.Stdout, "message %d is back in the outbox\n", seq)
			}
			return err
		})
	}
	return cmd
}

// decideMessages does the same to each of the messages that the arguments name, up to the first failure.
func (env *Env) decideMessages(cmd *cobra.Command, args []string, flags *byFlags,
	decide func(ctx context.Context, store *outboxstore.Store, seq int64, by projection.By) error,
) error {
	seqs, err := parseIDs(args)
	if err != nil {
		return err
	}
	by, err := flags.by()
	if err != nil {
		return err
	}
	return env.withOutbox(cmd, func(ctx context.Context, store *outboxstore.Store) error {
		for _, seq := range seqs {
			if err := decide(ctx, store, seq, by); err != nil {
				return err
			}
		}
		return nil
	})
}
