// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package supply

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

var (
	creationsInFlight = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kuryr_port_creations_in_flight",
		Help: "Ports asked of the SDN and not answered.",
	})
	poolRefills = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kuryr_pool_refills_total",
		Help: "Requests for ports that nobody waited for, by how they went: ok, partial (fewer ports than asked for), failed.",
	}, []string{"result"})
	portRequests = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kuryr_port_requests_total",
		Help: "Requests for ports, by whom they were for (pods, refill) and how they went (ok, partial, failed).",
	}, []string{"for", "result"})
)

func init() { metrics.Registry.MustRegister(creationsInFlight, poolRefills, portRequests) }

// count counts a request that has ended.
func count(o order, made []sdn.Port, err error) {
	result := "ok"
	switch {
	case err != nil && len(made) > 0:
		result = "partial"
	case err != nil:
		result = "failed"
	}
	if !o.spare {
		portRequests.WithLabelValues("pods", result).Inc()
		return
	}
	portRequests.WithLabelValues("refill", result).Inc()
	poolRefills.WithLabelValues(result).Inc()
}
