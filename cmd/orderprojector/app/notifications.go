package app

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/orderprojector/orderprojector/cmd/orderprojector/config"
	"github.com/orderprojector/orderprojector/projection/notifications"
	"github.com/orderprojector/orderprojector/projection/pgstore"
	"github.com/orderprojector/orderprojector/projection/webhook"
)

// NewNotifications is New for the consumer that tells a receiver of payments, in a group of its own.
func NewNotifications(ctx context.Context, cfg config.Config, logger *slog.Logger) (*App, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if err := cfg.Validate(config.SectionNotifications); err != nil {
		return nil, err
	}
	cfg.Kafka.Group = cfg.Notifications.Group
	byDefault(&cfg, config.DefaultNotificationsHTTPAddress)
	return newApp(ctx, cfg, logger, notifying)
}

// notifying builds the member that writes notifications, with the sender beside it.
func notifying(a *App, store *pgstore.Store) (member, error) {
	w := a.cfg.Notifications.Webhook
	client, err := webhook.NewClient(webhook.Config{URL: w.URL, StatusURL: w.StatusURL, Secret: w.Secret.Reveal(), Timeout: w.Timeout})
	if err != nil {
		return member{}, err
	}
	queue := pgstore.NotificationStore{Store: store}
	sender, err := notifications.NewSender(notifications.SenderConfig{
		Queue: queue, Receiver: client, Worker: worker(a.cfg), Idempotent: w.Idempotent, Gate: a.control, Logger: a.logger, Registerer: a.registry, Hint: Hint,
		Concurrency: w.Concurrency, QueueTimeout: a.cfg.Database.StatementTimeout + batchMargin, Grace: a.cfg.ShutdownGrace / 4,
	})
	if err != nil {
		return member{}, err
	}
	if client.Askable() || w.Idempotent {
		a.logger.Info("notifications go to a webhook", "askable", client.Askable(), "idempotent", w.Idempotent)
	} else {
		a.logger.Warn("the receiver of notifications cannot be asked whether it has acted, and may act twice: what becomes of an unknown outcome is left to an operator",
			"hint", "set --webhook-status-url, or --webhook-idempotent if it acts once on each Idempotency-Key")
	}
	m, err := besideProjector(a, notifications.Effect{Written: sender.Written}, queue, newNotificationStats(a.reader, a.logger))
	if err != nil {
		return member{}, err
	}
	m.beside = append(m.beside, sender.Run)
	m.trouble = func() error { return sender.Trouble(a.cfg.StallLimit) }
	return m, nil
}

// worker names the process for people who look at claims.
func worker(cfg config.Config) string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown-host"
	}
	if id := cfg.Kafka.InstanceID; id != "" {
		return fmt.Sprintf("%s-%s-%d", host, id, os.Getpid())
	}
	return fmt.Sprintf("%s-%d", host, os.Getpid())
}
