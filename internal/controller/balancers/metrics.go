// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
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
	balancersBusy = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "kuryr_loadbalancers_busy",
		Help: "Load balancers in PENDING_* that Kuryr waits for.",
	})
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
	metrics.Registry.MustRegister(balancerStages, writes, balancersBusy, balancerDrifts, balancersMended)
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

// stages are the times that are measured.
type stages struct {
	generation int64     // the last one that was begun
	begun      time.Time // when it was begun; zero: it has been in the cloud
	born       time.Time // when a new object was begun; zero: its load balancers have been ACTIVE
}

// begin notes the time when a generation is first seen. If an earlier process had it ready, finding
// it so is no stage.
func (v *reconciliation) begin() {
	if m := v.memory; m.generation != v.klb.Generation {
		m.generation, m.begun = v.klb.Generation, v.Now()
	}
	if balancer.IsReady(v.klb) {
		v.memory.begun = time.Time{}
	}
}

// measure observes how long the stages took.
func (v *reconciliation) measure() {
	observe := func(stage string, since *time.Time) {
		if !since.IsZero() {
			balancerStages.WithLabelValues(stage).Observe(v.Now().Sub(*since).Seconds())
			*since = time.Time{}
		}
	}
	if v.round.Seen && len(v.round.Trees) >= len(v.klb.Spec.VIPs) && len(v.round.did) == 0 && v.round.Waiting.ID == "" {
		observe("active", &v.memory.born)
	}
	if v.settled() {
		observe("synced", &v.memory.begun)
	}
}
