package app

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderprojector/orderprojector/projection/pgstore"
)

// newSnapshotStats exports the age of what holds vacuum back the longest. Where the database does not tell an age,
// the time since this process first saw the holder stands for it.
func newSnapshotStats(read func(context.Context) ([]pgstore.SnapshotHolder, error), logger *slog.Logger) *polled {
	oldest := prometheus.NewDesc("orderprojector_database_oldest_snapshot_seconds",
		"Age of the oldest transaction, prepared transaction or replication slot that holds back vacuum; 0 when there is none.", nil, nil)
	seen := map[string]time.Time{}
	return &polled{logger: logger, descs: []*prometheus.Desc{oldest}, read: func(ctx context.Context) (func(chan<- prometheus.Metric), error) {
		holders, err := read(ctx)
		if err != nil {
			return nil, err
		}
		before := seen
		seen = make(map[string]time.Time, len(holders))
		age, now := 0.0, time.Now()
		for _, h := range holders {
			if h.Seconds != nil {
				age = max(age, *h.Seconds)
				continue
			}
			key := h.Name + " " + h.Xmin
			first, known := before[key]
			if !known {
				first = now
			}
			seen[key] = first
			if h.Transactions > 0 { // a slot of a database at rest holds nothing back
				age = max(age, now.Sub(first).Seconds())
			}
		}
		return func(metrics chan<- prometheus.Metric) {
			metrics <- prometheus.MustNewConstMetric(oldest, prometheus.GaugeValue, age)
		}, nil
	}}
}
