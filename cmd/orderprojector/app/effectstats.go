package app

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderprojector/orderprojector/domain/notification"
	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// newLoyaltyStats exports what waits for a customer to be known.
func newLoyaltyStats(reader *pgstore.Reader, logger *slog.Logger) *polled {
	unowned := prometheus.NewDesc("orderprojector_points_entries_unowned", "Entries of the points ledger of which the customer is not known yet.", nil, nil)
	return &polled{logger: logger, descs: []*prometheus.Desc{unowned}, read: func(ctx context.Context) (func(chan<- prometheus.Metric), error) {
		n, err := reader.CountUnowned(ctx)
		return func(metrics chan<- prometheus.Metric) {
			metrics <- prometheus.MustNewConstMetric(unowned, prometheus.GaugeValue, float64(n))
		}, err
	}}
}

// newNotificationStats exports what is to be sent, and what waits for an operator.
func newNotificationStats(reader *pgstore.Reader, logger *slog.Logger) *polled {
	all := prometheus.NewDesc("orderprojector_notifications", "Notifications that are not sent, by state.", []string{"state"}, nil)
	oldest := prometheus.NewDesc("orderprojector_notifications_oldest_seconds", "Age of the oldest notification of a state; 0 when there is none.", []string{"state"}, nil)
	return &polled{logger: logger, descs: []*prometheus.Desc{all, oldest}, read: func(ctx context.Context) (func(chan<- prometheus.Metric), error) {
		counts, err := reader.CountNotifications(ctx)
		return func(metrics chan<- prometheus.Metric) {
			for _, state := range []notification.State{notification.Pending, notification.Sending, notification.Unknown, notification.Failed} {
				var count pgstore.NotificationCount
				for _, c := range counts {
					if c.State == string(state) {
						count = c
					}
				}
				metrics <- prometheus.MustNewConstMetric(all, prometheus.GaugeValue, float64(count.Notifications), string(state))
				metrics <- prometheus.MustNewConstMetric(oldest, prometheus.GaugeValue, count.OldestSeconds, string(state))
			}
		}, err
	}}
}
