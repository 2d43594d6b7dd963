package app

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// polled exports gauges that only the database knows. It asks in the background, so that a scrape never waits, and
// shows nothing once its numbers are too old.
type polled struct {
	read   func(context.Context) (func(chan<- prometheus.Metric), error)
	descs  []*prometheus.Desc
	logger *slog.Logger

	mu      sync.Mutex
	collect func(chan<- prometheus.Metric)
	readAt  time.Time
	failing bool
}

// run asks until ctx ends.
func (p *polled) run(ctx context.Context) {
	ticker := time.NewTicker(statsInterval)
	defer ticker.Stop()
	for {
		p.refresh(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}

func (p *polled) refresh(ctx context.Context) {
	readCtx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	collect, err := p.read(readCtx)
	p.mu.Lock()
	defer p.mu.Unlock()
	if err != nil && !p.failing && ctx.Err() == nil {
		p.logger.Warn("the metrics that come from the database are stale", "error", err)
	}
	if p.failing = err != nil; !p.failing {
		p.collect, p.readAt = collect, time.Now()
	}
}

// Describe implements prometheus.Collector.
func (p *polled) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range p.descs {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (p *polled) Collect(metrics chan<- prometheus.Metric) {
	p.mu.Lock()
	collect, readAt := p.collect, p.readAt
	p.mu.Unlock()
	if collect != nil && time.Since(readAt) <= statsExpiry {
		collect(metrics)
	}
}
