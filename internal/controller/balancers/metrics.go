// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kuryr-go/kuryr/internal/controller/outcome"
)

var (
	balancerStages = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "kuryr_loadbalancer_stage_seconds",
		Help: "From the controller seeing what a KuryrLoadBalancer asks for, to a new one's load balancers being ACTIVE (stage active), " +
			"and to the cloud having all of it, members included (stage synced).",
		Buckets: []float64{.05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 900},
	}, []string{"stage"})
	writes = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "kuryr_loadbalancer_writes_total",
		Help: "Changes of load balancers, what is below them, floating IPs and security groups that the cloud was asked for, by how that went: " +
			"ok, Pending (the load balancer is busy: it is asked again), or the reason why not, as conditions have it.",
	}, []string{"change", "result"})
	balancerDrifts = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kuryr_loadbalancer_drifts_total",
		Help: "Comparisons of a load balancer with the cloud that found it changed by somebody else.",
	})
	balancersMended = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kuryr_loadbalancer_mends_total",
		Help: "Repairs of load balancers, or of parts of them, that were in ERROR.",
	})
)

func init() {
	metrics.Registry.MustRegister(balancerStages, writes, balancerDrifts, balancersMended)
}

// count counts a change that the cloud was asked for, by its result, and returns the result.
func count(change string, err error) error {
	result := "ok"
	if err != nil {
		result = outcome.Of(outcome.LoadBalancer, err).Reason
	}
	writes.WithLabelValues(change, result).Inc()
	return err
}
