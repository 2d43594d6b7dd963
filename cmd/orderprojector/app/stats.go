package app

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orderprojector/orderprojector/projection/pgstore"
)

const (
	statsInterval = 10 * time.Second
	statsTimeout  = 5 * time.Second
	// statsExpiry is when numbers are too old to be shown: a gauge that is
	// absent raises an alert, one that is frozen looks fine.
	statsExpiry = time.Minute
)

// databaseStats exports what only the database knows. It asks in the background,
// so that a scrape never waits for the database.
type databaseStats struct {
	read   func(context.Context) (pgstore.Stats, error)
	logger *slog.Logger
	now    func() time.Time

	parkedEvents, parkedOldest, letters, lettersOldest, gapsOverdue, lettersOverdue, copiesPending, copiesOldest, watermarkAge,
	held, heldOldest, heldOverdue *prometheus.Desc

	copies bool // dead letters are copied, so copies that wait mean something

	mu      sync.Mutex
	stats   pgstore.Stats
	readAt  time.Time // zero before the first success
	failing bool
}

func newDatabaseStats(read func(context.Context) (pgstore.Stats, error), logger *slog.Logger) *databaseStats {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("orderprojector_"+name, help, labels, nil)
	}
	return &databaseStats{
		read: read, logger: logger, now: time.Now,
		parkedEvents:   desc("parked_events", "Events that wait for a version before them."),
		parkedOldest:   desc("parked_oldest_seconds", "For how long the oldest parked event waits; 0 when there is none."),
		letters:        desc("dead_letters", "Dead letters by status and reason.", "status", "reason"),
		gapsOverdue:    desc("gaps_overdue", "Orders that wait for a missing version for longer than the deadline."),
		lettersOverdue: desc("dead_letters_overdue", "Dead letters that wait for somebody for longer than the deadline."),
		lettersOldest:  desc("dead_letters_oldest_seconds", "Age of the oldest dead letter that waits for somebody; 0 when there is none."),
		copiesPending:  desc("dead_letter_copies_pending", "Dead letters whose copy is not in the dead-letter topic yet."),
		copiesOldest:   desc("dead_letter_copies_oldest_seconds", "For how long the oldest of them waits; 0 when there is none."),
		held:           desc("held_records", "Records that could not be made durable while others could. They are tried again."),
		heldOldest:     desc("held_oldest_seconds", "For how long the oldest held record is held; 0 when there is none."),
		heldOverdue:    desc("held_overdue", "Held records that are held for longer than the deadline."),
		watermarkAge:   desc("watermark_age_seconds", "How long ago the partition's watermark advanced. Grows while there is nothing to read.", "topic", "partition"),
	}
}

// run asks until ctx ends.
func (s *databaseStats) run(ctx context.Context) {
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

func (s *databaseStats) refresh(ctx context.Context) {
	readCtx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	stats, err := s.read(readCtx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		if !s.failing && ctx.Err() == nil {
			s.logger.Warn("the metrics that come from the database are stale", "error", err)
		}
		s.failing = true
		return
	}
	s.stats, s.readAt, s.failing = stats, s.now(), false
}

// Describe implements prometheus.Collector.
func (s *databaseStats) Describe(descs chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.parkedEvents, s.parkedOldest, s.letters, s.lettersOldest, s.gapsOverdue, s.lettersOverdue, s.copiesPending, s.copiesOldest, s.watermarkAge,
		s.held, s.heldOldest, s.heldOverdue} {
		descs <- d
	}
}

// Collect implements prometheus.Collector.
func (s *databaseStats) Collect(metrics chan<- prometheus.Metric) {
	s.mu.Lock()
	stats, readAt := s.stats, s.readAt
	s.mu.Unlock()
	age := s.now().Sub(readAt)
	if readAt.IsZero() || age > statsExpiry {
		return
	}
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		metrics <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	gauge(s.parkedEvents, float64(stats.ParkedEvents))
	gauge(s.parkedOldest, stats.ParkedOldestSeconds)
	gauge(s.lettersOldest, stats.DeadLettersOldestSeconds)
	gauge(s.gapsOverdue, float64(stats.GapsOverdue))
	gauge(s.lettersOverdue, float64(stats.DeadLettersOverdue))
	gauge(s.held, float64(stats.Held.Records))
	gauge(s.heldOldest, stats.Held.OldestSeconds)
	gauge(s.heldOverdue, float64(stats.Held.Overdue))
	if s.copies {
		gauge(s.copiesPending, float64(stats.CopiesPending))
		gauge(s.copiesOldest, stats.CopiesOldestSeconds)
	}
	for _, l := range stats.AllDeadLetters() {
		gauge(s.letters, float64(l.Letters), l.Status, l.Reason)
	}
	for _, w := range stats.Watermarks {
		gauge(s.watermarkAge, w.Seconds+age.Seconds(), w.KafkaTopic, strconv.Itoa(int(w.KafkaPartition)))
	}
}
