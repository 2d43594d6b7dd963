package app

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	outboxstore "github.com/orderprojector/orderprojector/outbox/pgstore"
)

// newOutboxStats exports what only the database knows of the outbox.
func newOutboxStats(read func(context.Context) (outboxstore.Status, error), logger *slog.Logger) *polled {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("orderprojector_"+name, help, nil, nil)
	}
	unpublished := desc("outbox_unpublished", "Messages in the outbox that are not published yet.")
	oldest := desc("outbox_oldest_seconds", "For how long the first of them waits; 0 when there is none.")
	discarded := desc("outbox_discarded", "Messages that operators gave up.")
	return &polled{logger: logger, descs: []*prometheus.Desc{unpublished, oldest, discarded}, read: func(ctx context.Context) (func(chan<- prometheus.Metric), error) {
		status, err := read(ctx)
		return func(metrics chan<- prometheus.Metric) {
			for desc, value := range map[*prometheus.Desc]float64{
				unpublished: float64(status.Unpublished), oldest: status.OldestSeconds, discarded: float64(status.DiscardedMessages),
			} {
				metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
			}
		}, err
	}}
}
