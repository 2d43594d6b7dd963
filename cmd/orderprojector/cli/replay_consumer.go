package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/app"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/cmd/orderprojector/progress"
	"github.com/orderprojector/orderprojector/projection"
	"github.com/orderprojector/orderprojector/projection/effects"
	"github.com/orderprojector/orderprojector/projection/loyalty"
	"github.com/orderprojector/orderprojector/projection/notifications"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// projectorConsumer is the consumer that replay is for by default.
const projectorConsumer = "projector"

var consumers = []string{projectorConsumer, loyalty.Name, notifications.Name}

// addConsumerFlag adds --consumer.
func addConsumerFlag(cmd *cobra.Command) *string {
	name := cmd.Flags().String("consumer", projectorConsumer, "whose records: projector, loyalty or notifications")
	_ = cmd.RegisterFlagCompletionFunc("consumer", cobra.FixedCompletions(consumers, cobra.ShellCompDirectiveNoFileComp))
	return name
}

// consumerGroup is the group of a consumer.
func consumerGroup(cfg config.Config, consumer string) string {
	switch consumer {
	case loyalty.Name:
		return cfg.Loyalty.Group
	case notifications.Name:
		return cfg.Notifications.Group
	}
	return cfg.Kafka.Group
}

// effectsReplayView is what a replay of a consumer beside the projector found and did.
type effectsReplayView struct {
	Topic      string          `json:"topic"`
	Group      string          `json:"group"`
	Consumer   string          `json:"consumer"`
	DryRun     bool            `json:"dry_run"`
	Partitions []replayStretch `json:"partitions"`
	effects.ReplayResult
	Seconds float64 `json:"seconds"`
}

// replayConsumer replays for a consumer beside the projector, by its policy.
func (env *Env) replayConsumer(cmd *cobra.Command, consumer string, f *replayFlags, b replayBounds, out *output) error {
	var view *effectsReplayView
	err := env.withReading(cmd, func(ctx context.Context, r *reading) (err error) {
		r.cfg.Kafka.Group = consumerGroup(r.cfg, consumer)
		view, err = env.replayEffects(ctx, r, consumer, f, b)
		return err
	})
	if view == nil {
		return err
	}
	if printed := out.print(env.Stdout, view, func(t *tableWriter) { effectsReplayTable(t, view) }); printed != nil {
		return errors.Join(err, printed)
	}
	if err != nil {
		return err
	}
	if none := func(s replayStretch) bool { return !s.none }; len(view.Partitions) > 0 && !slices.ContainsFunc(view.Partitions, none) {
		return notFoundError("no partition has a record to begin with: nothing was done")
	}
	return nil
}

func (env *Env) replayEffects(ctx context.Context, r *reading, consumer string, f *replayFlags, b replayBounds) (*effectsReplayView, error) {
	by := projection.By{}
	if f.execute {
		var err error
		if by, err = f.by.by(); err != nil {
			return nil, err
		}
	}
	state, err := env.replayState(ctx, r, f, b)
	if err != nil {
		return nil, err
	}
	view := &effectsReplayView{Topic: state.Topic, Group: state.Group, Consumer: consumer, DryRun: !f.execute, Partitions: state.Partitions}
	cfg := effects.ReplayConfig{Log: r.log, Orders: f.orders, Execute: f.execute, Rate: f.rate}
	for _, s := range state.Partitions {
		if s.From < s.Until {
			cfg.Ranges = append(cfg.Ranges, projection.LogRange{TopicPartition: s.log, From: s.From, Until: s.Until})
		}
	}
	pool, err := app.OpenPool(ctx, r.cfg.Database, app.WritePool, 2)
	if err != nil {
		return nil, err
	}
	defer pool.Close()
	store := pgstore.New(pool)
	if f.execute && len(cfg.Ranges) > 0 {
		if err := store.Audit(ctx, projection.AuditEntry{
			Actor: by.Actor, Action: "replay", Target: "topic " + state.Topic, Comment: by.Comment,
			After: map[string]any{"consumer": consumer, "partitions": state.Partitions, "orders": f.orders},
		}); err != nil {
			return nil, err
		}
	}
	line := progress.New(env.Stderr, isTerminal(env.Stderr))
	defer line.Clear()
	var saving error
	cfg.Progress = state.track(line, &saving)
	began := time.Now()
	var result *effects.ReplayResult
	switch consumer {
	case loyalty.Name:
		result, err = replayWith(ctx, env, r, loyalty.Effect{}, pgstore.LoyaltyStore{Store: store}, cfg)
	case notifications.Name:
		result, err = replayWith(ctx, env, r, notifications.Effect{}, pgstore.NotificationStore{Store: store}, cfg)
	}
	view.Partitions, view.Seconds = state.Partitions, time.Since(began).Seconds()
	if result != nil {
		view.ReplayResult = *result
	}
	if err != nil {
		return view, errors.Join(err, state.save(true))
	}
	return view, errors.Join(saving, state.remove())
}

func replayWith[T effects.Tx](ctx context.Context, env *Env, r *reading, effect effects.Effect[T], store effects.Store[T], cfg effects.ReplayConfig) (*effects.ReplayResult, error) {
	consumer, err := effects.New(effects.Config[T]{
		Group: r.cfg.Kafka.Group, Effect: effect, Store: store, Older: r.records, Logger: env.logger(r.cfg.Log), Hint: app.Hint,
		BatchTimeout: r.cfg.Database.StatementTimeout + time.Second,
	})
	if err != nil {
		return nil, err
	}
	return consumer.Replay(ctx, cfg)
}

func effectsReplayTable(t *tableWriter, v *effectsReplayView) {
	t.field("topic", v.Topic)
	t.field("consumer", fmt.Sprintf("%s, group %s", v.Consumer, v.Group))
	t.field("side-effect policy", string(v.Policy))
	replayedTable(t, v.DryRun, v.Records, v.Seconds, v.Partitions)
	t.section("OUTCOMES")
	for _, outcome := range slices.Sorted(maps.Keys(v.Outcomes)) {
		t.field(outcome, strconv.FormatInt(v.Outcomes[outcome], 10))
	}
	if len(v.Missing) > 0 {
		t.section("EVENTS THAT WERE NOT CONSUMED")
		t.row("EVENT", "ORDER", "TYPE", "EFFECT", "PARTITION", "OFFSET")
		for _, m := range v.Missing {
			t.row(m.EventID, m.OrderID, m.Type, m.Effect, strconv.Itoa(int(m.Partition)), strconv.FormatInt(m.Offset, 10))
		}
	}
}
