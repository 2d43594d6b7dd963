package effects

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/orderprojector/orderprojector/projection"
)

type metrics struct {
	projection.MemberMetrics
	held *prometheus.CounterVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		MemberMetrics: projection.NewMemberMetrics(reg),
		held: promauto.With(reg).NewCounterVec(prometheus.CounterOpts{
			Name: "orderprojector_held_retries_total", Help: "Held records tried again, by what came of it.",
		}, []string{"result"}),
	}
	for _, result := range []string{heldDone, heldAgain, heldDead} {
		m.held.WithLabelValues(result)
	}
	return m
}
