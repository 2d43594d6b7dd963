package notifications

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/orderprojector/orderprojector/domain/notification"
)

type senderMetrics struct {
	calls     *prometheus.CounterVec
	questions *prometheus.CounterVec
	results   *prometheus.CounterVec
	duration  prometheus.Histogram
}

func newSenderMetrics(reg prometheus.Registerer) *senderMetrics {
	auto := promauto.With(reg)
	m := &senderMetrics{
		calls: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "orderprojector_webhook_calls_total", Help: "Calls of the webhook, by what the answer means.",
		}, []string{"verdict"}),
		questions: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "orderprojector_webhook_questions_total", Help: "Questions whether the receiver has acted, by what the answer means.",
		}, []string{"verdict"}),
		results: auto.NewCounterVec(prometheus.CounterOpts{
			Name: "orderprojector_notification_results_total", Help: "Attempts at notifications, by the state that they led to.",
		}, []string{"state"}),
		duration: auto.NewHistogram(prometheus.HistogramOpts{
			Name: "orderprojector_webhook_duration_seconds", Help: "Time from a call of the webhook to its answer.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30},
		}),
	}
	for _, v := range Verdicts() {
		m.calls.WithLabelValues(string(v))
		m.questions.WithLabelValues(string(v))
	}
	for _, state := range notification.States() {
		m.results.WithLabelValues(string(state))
	}
	return m
}
