package kafkaio

import (
	"errors"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const metricPrefix = "orderprojector_"

// metrics are the counters; what a partition is at is collected from the
// status, so that a revoked partition leaves nothing behind.
type metrics struct {
	rebalances prometheus.Counter
	dataLoss   prometheus.Counter
	restarts   prometheus.Counter
}

func newMetrics() *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: metricPrefix + name, Help: help})
	}
	return &metrics{
		rebalances: counter("rebalances_total", "Assignments received from the consumer group."),
		dataLoss:   counter("data_loss_total", "Offsets that were removed from the log before they were read, or after."),
		restarts:   counter("partition_restarts_total", "Times an owned partition was assigned anew after a rewind or a failure."),
	}
}

func (m *metrics) register(reg prometheus.Registerer, c *Consumer) error {
	var errs []error
	for _, collector := range []prometheus.Collector{m.rebalances, m.dataLoss, m.restarts, newStatusCollector(c)} {
		errs = append(errs, reg.Register(collector))
	}
	return errors.Join(errs...)
}

type statusCollector struct {
	consumer *Consumer

	lag, lagSeconds, transaction, transactionSeconds, headroom, ahead, halted, position, joined *prometheus.Desc
}

func newStatusCollector(c *Consumer) *statusCollector {
	perPartition := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(metricPrefix+name, help, []string{"topic", "partition"}, nil)
	}
	return &statusCollector{
		consumer:   c,
		lag:        perPartition("consumer_lag_records", "Offsets between the position and the high watermark."),
		lagSeconds: perPartition("consumer_lag_seconds", "Age of the first record that waits; zero when there is none."),

		transaction:        perPartition("consumer_open_transaction_offsets", "Offsets that wait behind the oldest open transaction; zero when none is open."),
		transactionSeconds: perPartition("consumer_open_transaction_seconds", "For how long this member has seen that transaction open; zero when none is."),

		headroom: perPartition("retention_headroom_records", "Offsets between the start of the log and the position."),
		ahead:    perPartition("committed_ahead", "1 while the group's committed offset is ahead of what the database holds."),
		halted:   perPartition("partition_halted", "1 while the partition is halted and needs an operator."),
		position: perPartition("consumer_position_offset", "Next offset to read; everything below is in the database."),
		joined:   prometheus.NewDesc(metricPrefix+"consumer_joined", "1 while the member is in its consumer group.", nil, nil),
	}
}

func (s *statusCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{s.lag, s.lagSeconds, s.transaction, s.transactionSeconds, s.headroom, s.ahead, s.halted, s.position, s.joined} {
		ch <- d
	}
}

func (s *statusCollector) Collect(ch chan<- prometheus.Metric) {
	status := s.consumer.Status()
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	flag := func(b bool) float64 {
		if b {
			return 1
		}
		return 0
	}
	gauge(s.joined, flag(status.Member.Joined))
	for _, p := range status.Partitions {
		partition := strconv.Itoa(int(p.Partition))
		gauge(s.halted, flag(p.HaltedReason != ""), p.Topic, partition)
		gauge(s.lag, float64(p.Lag), p.Topic, partition)
		if p.LagTimeKnown {
			gauge(s.lagSeconds, p.LagTime.Seconds(), p.Topic, partition)
		}
		open := 0.0
		if p.BehindTransaction > 0 {
			open = time.Since(p.TransactionSince).Seconds()
		}
		gauge(s.transaction, float64(p.BehindTransaction), p.Topic, partition)
		gauge(s.transactionSeconds, open, p.Topic, partition)
		if !p.Assigned {
			continue
		}
		gauge(s.ahead, flag(p.CommittedAheadOfWatermark), p.Topic, partition)
		gauge(s.headroom, float64(p.RetentionHeadroom), p.Topic, partition)
		gauge(s.position, float64(p.Position), p.Topic, partition)
	}
}
