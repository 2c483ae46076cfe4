// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// Metrics are summed over all pools, so that their number does not grow with
// the nodes; a pool's own levels are in its KuryrPortPool.
var (
	bindSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kuryr_pod_bind_seconds",
		Help:    "From the controller seeing a pod scheduled to the pod's KuryrPort being bound.",
		Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
	})
	portsByState = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "kuryr_ports",
		Help: "KuryrPorts by state, over all pools.",
	}, []string{"state"})
	podsWaiting = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kuryr_pods_waiting",
		Help: "Scheduled pods without a port, over all pools.",
	})
	poolHits = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kuryr_pool_hits_total",
		Help: "Pods that found a port of their pool ready.",
	})
	poolMisses = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kuryr_pool_misses_total",
		Help: "Pods that had to wait for a port.",
	})
	poolWaitSeconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "kuryr_pool_wait_seconds",
		Help:    "How long pods that found no port ready waited for one.",
		Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 1800},
	})
)

func init() {
	metrics.Registry.MustRegister(bindSeconds, portsByState, podsWaiting, poolHits, poolMisses, poolWaitSeconds)
}

// gaugeLevels moves the metrics of one pool from one count to the next.
func gaugeLevels(from, to pool.Count) {
	portsByState.WithLabelValues("available").Add(float64(to.Available - from.Available))
	portsByState.WithLabelValues("bound").Add(float64(to.Bound - from.Bound))
	portsByState.WithLabelValues("recycling").Add(float64(to.Recycling - from.Recycling))
	podsWaiting.Add(float64(to.Waiting - from.Waiting))
}
