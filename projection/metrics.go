package projection

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics are the projector's own.
type metrics struct {
	MemberMetrics
	visible prometheus.Histogram
	swept   prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	return &metrics{
		MemberMetrics: NewMemberMetrics(reg),
		visible: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "orderprojector_event_visible_seconds", Help: "Age of a batch's oldest record when its rows became visible, by the record's timestamp.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60, 300, 3600},
		}),
		swept: auto.NewCounter(prometheus.CounterOpts{
			Name: "orderprojector_swept_orders_total", Help: "Orders that the sweep found with parked events whose turn had come.",
		}),
	}
}
