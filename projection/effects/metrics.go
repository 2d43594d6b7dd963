package effects

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/orderprojector/orderprojector/projection"
)

// metrics have the names of the projector's where they mean the same: another process, another registry.
type metrics struct {
	events   *prometheus.CounterVec
	reread   prometheus.Counter
	duration prometheus.Histogram
	batch    prometheus.Histogram
	retries  *prometheus.CounterVec
	rewinds  prometheus.Counter
	blamed   prometheus.Counter
	ahead    *prometheus.GaugeVec
	held     *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	m := &metrics{
		events: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "orderprojector_events_total", Help: "Records by their first decision.",
		}, []string{"outcome"}),
		reread: auto.NewCounter(prometheus.CounterOpts{
			Name: "orderprojector_reread_records_total", Help: "Records read again below the watermark.",
		}),
		duration: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "orderprojector_apply_duration_seconds", Help: "Time to make one batch durable, from its first statement to its commit.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		batch: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "orderprojector_batch_records", Help: "Records per committed batch.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
		retries: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "orderprojector_retries_total", Help: "Batches tried again, by the class of the failure.",
		}, []string{"class"}),
		rewinds: auto.NewCounter(prometheus.CounterOpts{
			Name: "orderprojector_rewinds_total", Help: "Times a member found the database behind its position and went back.",
		}),
		blamed: auto.NewCounter(prometheus.CounterOpts{
			Name: "orderprojector_blamed_records_total", Help: "Records that the database refused when tried alone.",
		}),
		ahead: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "orderprojector_committed_ahead_records", Help: "How far the group's committed offset was ahead of the watermark at assignment; it is not followed.",
		}, []string{"topic", "partition"}),
		held: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "orderprojector_held_retries_total", Help: "Held records tried again, by what came of it.",
		}, []string{"result"}),
	}
	for _, o := range projection.Outcomes() {
		m.events.WithLabelValues(o.String())
	}
	for f := projection.Transient; f <= projection.Unhealthy; f++ {
		m.retries.WithLabelValues(f.String())
	}
	for _, result := range []string{heldDone, heldAgain, heldDead} {
		m.held.WithLabelValues(result)
	}
	return m
}

func (m *metrics) count(c projection.Counts, visible int64) {
	for _, o := range projection.Outcomes() {
		if n := c[o]; n > 0 {
			m.events.WithLabelValues(o.String()).Add(float64(n))
		}
	}
	if again := visible - c.Total(); again > 0 {
		m.reread.Add(float64(again))
	}
}
