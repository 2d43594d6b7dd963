package projection

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the projector's own. Labels come from closed sets only.
type metrics struct {
	events        *prometheus.CounterVec
	reread        prometheus.Counter
	applyDuration prometheus.Histogram
	batchRecords  prometheus.Histogram
	visible       prometheus.Histogram
	retries       *prometheus.CounterVec
	rewinds       prometheus.Counter
	blamed        prometheus.Counter
	ahead         *prometheus.GaugeVec
	swept         prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	m := &metrics{
		events: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "orderprojector_events_total", Help: "Records by their first decision.",
		}, []string{"outcome"}),
		reread: auto.NewCounter(prometheus.CounterOpts{
			Name: "orderprojector_reread_records_total", Help: "Records read again below the watermark, which change nothing.",
		}),
		applyDuration: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "orderprojector_apply_duration_seconds", Help: "Time to make one batch durable, from its first statement to its commit.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		batchRecords: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "orderprojector_batch_records", Help: "Records per committed batch.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
		visible: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "orderprojector_event_visible_seconds", Help: "Age of a batch's oldest record when its rows became visible, by the record's timestamp.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60, 300, 3600},
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
		swept: auto.NewCounter(prometheus.CounterOpts{
			Name: "orderprojector_swept_orders_total", Help: "Orders that the sweep found with parked events whose turn had come.",
		}),
	}
	for _, o := range Outcomes() {
		m.events.WithLabelValues(o.String())
	}
	for f := range failureCount {
		m.retries.WithLabelValues(f.String())
	}
	return m
}

func (m *metrics) count(c Counts, visible int64) {
	for o, n := range c {
		if n > 0 {
			m.events.WithLabelValues(Outcome(o).String()).Add(float64(n))
		}
	}
	if again := visible - c.Total(); again > 0 {
		m.reread.Add(float64(again))
	}
}
