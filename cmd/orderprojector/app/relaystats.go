package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	outboxstore "github.com/orderprojector/orderprojector/outbox/pgstore"
)

// outboxStats exports what only the database knows of the outbox. It asks in the background, so
// that a scrape never waits for the database.
type outboxStats struct {
	read   func(context.Context) (outboxstore.Status, error)
	logger *slog.Logger

	unpublished, oldest, discarded *prometheus.Desc

	mu      sync.Mutex
	status  outboxstore.Status
	readAt  time.Time // zero before the first success
	failing bool
}

func newOutboxStats(read func(context.Context) (outboxstore.Status, error), logger *slog.Logger) *outboxStats {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc("orderprojector_"+name, help, nil, nil)
	}
	return &outboxStats{
		read: read, logger: logger,
		unpublished: desc("outbox_unpublished", "Messages in the outbox that are not published yet."),
		oldest:      desc("outbox_oldest_seconds", "For how long the first of them waits; 0 when there is none."),
		discarded:   desc("outbox_discarded", "Messages that operators gave up."),
	}
}

// run asks until ctx ends.
func (s *outboxStats) run(ctx context.Context) {
	ticker := time.NewTicker(statsInterval)
	defer ticker.Stop()
	for {
		s.refresh(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (s *outboxStats) refresh(ctx context.Context) {
	readCtx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	status, err := s.read(readCtx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if !s.failing && ctx.Err() == nil {
			s.logger.Warn("the metrics that come from the database are stale", "error", err)
		}
		s.failing = true
		return
	}
	s.status, s.readAt, s.failing = status, time.Now(), false
}

// Describe implements prometheus.Collector.
func (s *outboxStats) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.unpublished, s.oldest, s.discarded} {
		descs <- d
	}
}

// Collect implements prometheus.Collector. What is too old is not shown: a gauge that is absent
// raises an alert, one that is frozen looks fine.
func (s *outboxStats) Collect(metrics chan<- prometheus.Metric) {
	s.mu.Lock()
	status, readAt := s.status, s.readAt
	s.mu.Unlock()
	age := time.Since(readAt)
	if readAt.IsZero() || age > statsExpiry {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value)
	}
	gauge(s.unpublished, float64(status.Unpublished))
	gauge(s.oldest, status.OldestSeconds)
	gauge(s.discarded, float64(status.DiscardedMessages))
}
