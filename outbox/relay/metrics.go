package relay

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

type metrics struct {
	published prometheus.Counter
	refused   *prometheus.CounterVec
	failures  *prometheus.CounterVec
	delay     prometheus.Histogram
	active    prometheus.Gauge
	inFlight  prometheus.Gauge
	blocked   prometheus.Gauge
	suspects  prometheus.Gauge
	unacked   prometheus.Gauge
}

func newMetrics(reg prometheus.Registerer) *metrics {
	auto := promauto.With(reg)
	m := &metrics{
		published: auto.NewCounter(prometheus.CounterOpts{
			Name: "orderprojector_outbox_published_total", Help: "Messages that the broker acknowledged, repeats included.",
		}),
		refused: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "orderprojector_outbox_refused_total", Help: "Messages found to be impossible to publish, by reason; each holds its order back.",
		}, []string{"reason"}),
		failures: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "orderprojector_outbox_failures_total", Help: "Failures of broker and database that kept messages waiting, by class.",
		}, []string{"class"}),
		delay: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "orderprojector_outbox_publish_seconds", Help: "From when a message was stored until the broker acknowledged it.",
			Buckets: []float64{.002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300, 1800},
		}),
		active: auto.NewGauge(prometheus.GaugeOpts{
			Name: "orderprojector_outbox_relay_active", Help: "1 while this relay is the one that publishes.",
		}),
		inFlight: auto.NewGauge(prometheus.GaugeOpts{
			Name: "orderprojector_outbox_in_flight", Help: "Messages that wait for the broker's acknowledgement.",
		}),
		blocked: auto.NewGauge(prometheus.GaugeOpts{
			Name: "orderprojector_outbox_blocked_orders", Help: "Orders that a message holds back which cannot be published; seen by the active relay.",
		}),
	}
	m.suspects = auto.NewGauge(prometheus.GaugeOpts{
		Name: "orderprojector_outbox_suspects", Help: "Orders whose next message failed among others, and is sent apart from them.",
	})
	m.unacked = auto.NewGauge(prometheus.GaugeOpts{
		Name: "orderprojector_outbox_unacknowledged_seconds", Help: "Since when the message was sent first that waits longest for its acknowledgement; 0 when there is none.",
	})
	for _, reason := range Reasons() {
		m.refused.WithLabelValues(string(reason))
	}
	for _, class := range Classes() {
		m.failures.WithLabelValues(string(class))
	}
	return m
}
