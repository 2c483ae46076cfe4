// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"strconv"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// metrics are the daemon's metrics. Their registry is their own, so that tests can run several
// daemons in one process.
type metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	duration *prometheus.HistogramVec
	mended   prometheus.Counter
}

func newMetrics(j *journal, p *parker) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuryr_cni_requests_total",
			Help: "CNI calls answered, by command and error code (0: success; docs/cni.md has the others).",
		}, []string{"command", "code"}),
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kuryr_cni_duration_seconds",
			Help:    "Time of a CNI call, by command and stage: port (waiting for the port), journal (writing it to disk), plug, wired (waiting for the data path), hostports (waiting for the tables), total.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
		}, []string{"command", "stage"}),
	}
	m.mended = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kuryr_cni_mended_total",
		Help: "Ports of running pods that were off the node's switch, and were plugged into it again.",
	})
	m.registry.MustRegister(m.requests, m.duration, m.mended,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kuryr_cni_journal_entries",
			Help: "Ports that are plugged on this node, as the journal says.",
		}, func() float64 { return float64(j.size()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kuryr_cni_parked_ports",
			Help: "Standby ports: free ports that are plugged on this node for new pods.",
		}, func() float64 { return float64(p.count()) }),
		plugged("parking", func() float64 { return float64(p.parking.Counts().Claimed) }),
		plugged("anew", func() float64 { return float64(p.parking.Counts().Made) }))
	return m
}

// plugged returns a counter of the ports that sandboxes got from one of the two places.
func plugged(from string, count func() float64) prometheus.Collector {
	return prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name:        "kuryr_cni_plugged_total",
		Help:        "Ports that pods got: a standby port, or one plugged for the pod.",
		ConstLabels: prometheus.Labels{"from": from},
	}, count)
}

// collectors returns the metrics of node ports.
func (n *nodePorts) collectors() []prometheus.Collector {
	all := []prometheus.Collector{prometheus.NewCounterFunc(prometheus.CounterOpts{
		Name: "kuryr_node_ports_failures_total",
		Help: "Times that the tables of node ports, external IPs and host ports could not be brought up to date; each is tried again.",
	}, func() float64 { return float64(n.failures.Load()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kuryr_node_ports_health_checks_blocked",
		Help: "Health check ports of Services that another process of this node listens on; the log names them.",
	}, func() float64 { return float64(n.blocked.Load()) })}
	for i, family := range []string{"ipv4", "ipv6"} {
		labels := prometheus.Labels{"family": family}
		all = append(all, prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kuryr_node_ports", ConstLabels: labels,
			Help: "Node ports, external IPs and host ports, by protocol, that this node passes on.",
		}, func() float64 { return float64(n.entries[i].Load()) }), prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "kuryr_node_ports_forwarding", ConstLabels: labels,
			Help: "1 if the node passes on packets of others (net.ipv4.ip_forward, net.ipv6.conf.all.forwarding); without it they answer on the node itself only.",
		}, func() float64 {
			if n.forwarded[i].Load() {
				return 1
			}
			return 0
		}))
	}
	return all
}

// stage starts the clock of a stage. The caller calls the result at the end of the stage.
func (m *metrics) stage(command, stage string) func() {
	started := time.Now()
	return func() { m.duration.WithLabelValues(command, stage).Observe(time.Since(started).Seconds()) }
}

func (m *metrics) count(command string, e *types.Error) {
	switch command {
	case "ADD", "DEL", "CHECK", "GC", "STATUS":
	default:
		command = "other" // limits the label to a few values
	}
	code := uint(0)
	if e != nil {
		code = e.Code
	}
	m.requests.WithLabelValues(command, strconv.FormatUint(uint64(code), 10)).Inc()
}
