package projection

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// MemberMetrics are those of every kind of member: the projector's, and those of consumers beside it, which are other
// processes with other registries. Labels come from closed sets only. They are safe for concurrent use.
type MemberMetrics struct {
	Events        *prometheus.CounterVec
	Reread        prometheus.Counter
	ApplyDuration prometheus.Histogram
	BatchRecords  prometheus.Histogram
	Retries       *prometheus.CounterVec
	Rewinds       prometheus.Counter
	Blamed        prometheus.Counter
	Held          *prometheus.CounterVec
	Ahead         *prometheus.GaugeVec
}

// NewMemberMetrics registers the metrics; a registerer that has them already panics.
func NewMemberMetrics(reg prometheus.Registerer) MemberMetrics {
	auto := promauto.With(reg)
	m := MemberMetrics{
		Events: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "orderprojector_events_total", Help: "Records by their first decision.",
		}, []string{"outcome"}),
		Reread: auto.NewCounter(prometheus.CounterOpts{
			Name: "orderprojector_reread_records_total", Help: "Records read again below the watermark.",
		}),
		ApplyDuration: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "orderprojector_apply_duration_seconds", Help: "Time to make one batch durable, from its first statement to its commit.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
		BatchRecords: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "orderprojector_batch_records", Help: "Records per committed batch.",
			Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
		Retries: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "orderprojector_retries_total", Help: "Batches tried again, by the class of the failure.",
		}, []string{"class"}),
		Rewinds: auto.NewCounter(prometheus.CounterOpts{
			Name: "orderprojector_rewinds_total", Help: "Times a member found the database behind its position and went back.",
		}),
		Blamed: auto.NewCounter(prometheus.CounterOpts{
			Name: "orderprojector_blamed_records_total", Help: "Records that the database refused when tried alone.",
		}),
		Held: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "orderprojector_held_retries_total", Help: "Held records tried again, by what came of it.",
		}, []string{"result"}),
		Ahead: auto.NewGaugeVec(prometheus.GaugeOpts{
			Name: "orderprojector_committed_ahead_records", Help: "How far the group's committed offset was ahead of the watermark at assignment; it is not followed.",
		}, []string{"topic", "partition"}),
	}
	for _, o := range Outcomes() {
		m.Events.WithLabelValues(o.String())
	}
	for _, result := range []string{heldDone, heldAgain, heldDead} {
		m.Held.WithLabelValues(result)
	}
	for f := range failureCount {
		m.Retries.WithLabelValues(f.String())
	}
	return m
}

// Count adds the first decisions of a batch; the rest of its visible records were read again.
func (m *MemberMetrics) Count(c Counts, visible int64) {
	for o, n := range c {
		if n > 0 {
			m.Events.WithLabelValues(Outcome(o).String()).Add(float64(n))
		}
	}
	if again := visible - c.Total(); again > 0 {
		m.Reread.Add(float64(again))
	}
}
