package app

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection/effects"
	"github.com/orderprojector/orderprojector/projection/loyalty"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// NewLoyalty is New for the consumer that keeps points, in a group of its own.
func NewLoyalty(ctx context.Context, cfg config.Config, logger *slog.Logger) (*App, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err // before the group takes the place of the projector's
	}
	cfg.Kafka.Group = cfg.Loyalty.Group
	byDefault(&cfg, config.DefaultLoyaltyHTTPAddress)
	return newApp(ctx, cfg, logger, func(a *App, store *pgstore.Store) (member, error) {
		return besideProjector(a, loyalty.Effect{}, pgstore.LoyaltyStore{Store: store}, newLoyaltyStats(a.reader, a.logger))
	})
}

// byDefault makes a program listen at an address of its own, unless somebody chose another.
func byDefault(cfg *config.Config, address string) {
	if cfg.HTTP.Address == config.DefaultHTTPAddress && !cfg.Explicit("http-address") {
		cfg.HTTP.Address = address
	}
}

// besideProjector builds a member that has effects made.
func besideProjector[T effects.Tx](a *App, effect effects.Effect[T], tx effects.Store[T], stats *polled) (member, error) {
	consumer, err := effects.New(effects.Config[T]{
		Group: a.cfg.Kafka.Group, Effect: effect, Store: tx, Older: a.records, Control: a.control,
		Logger: a.logger, Registerer: a.registry, Hint: Hint,
		Writers: a.cfg.Database.Writers, BatchTimeout: a.cfg.Database.StatementTimeout + batchMargin,
	})
	if err != nil {
		return member{}, err
	}
	if err := a.registry.Register(stats); err != nil {
		return member{}, fmt.Errorf("registering metrics: %w", err)
	}
	return member{
		handler: consumer, troubles: consumer.Troubles, beside: []func(context.Context){consumer.RetryHeld, stats.run},
	}, nil
}
