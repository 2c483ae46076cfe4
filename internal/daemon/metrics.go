// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/containernetworking/cni/pkg/types"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/apimachinery/pkg/util/wait"
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
		gauge("kuryr_cni_journal_entries", "Ports that are plugged on this node, as the journal says.", nil, func() int { return len(j.all()) }),
		gauge("kuryr_cni_parked_ports", "Standby ports: free ports that are plugged on this node for new pods.", nil, p.count),
		plugged("parking", func() float64 { return float64(p.parking.Counts().Claimed) }),
		plugged("anew", func() float64 { return float64(p.parking.Counts().Made) }))
	return m
}

// gauge returns a gauge whose value is read when it is asked for.
func gauge(name, help string, labels prometheus.Labels, value func() int) prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help, ConstLabels: labels}, func() float64 { return float64(value()) })
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
	}, func() float64 { return float64(n.failures.Load()) }), gauge("kuryr_node_ports_health_checks_blocked",
		"Health check ports of Services that another process of this node listens on; the log names them.", nil, func() int { return int(n.blocked.Load()) })}
	for i, family := range []string{"ipv4", "ipv6"} {
		labels := prometheus.Labels{"family": family}
		all = append(all, gauge("kuryr_node_ports", "Node ports, external IPs and host ports, by protocol, that this node passes on.", labels,
			func() int { return int(n.entries[i].Load()) }), gauge("kuryr_node_ports_forwarding",
			"1 if the node passes on packets of others (net.ipv4.ip_forward, net.ipv6.conf.all.forwarding); without it they answer on the node itself only.",
			labels, func() int {
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

// serveHTTP serves health and metrics at their addresses, if configured.
func (d *Daemon) serveHTTP(ctx context.Context) error {
	health := http.NewServeMux()
	health.HandleFunc("GET /livez", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, "ok") })
	health.HandleFunc("GET /readyz", d.readyz)
	numbers := http.NewServeMux()
	numbers.Handle("GET /metrics", promhttp.HandlerFor(d.metrics.registry, promhttp.HandlerOpts{}))

	var servers sync.WaitGroup
	servers.Go(func() { keepListening(ctx, d.HealthAddress, health) })
	servers.Go(func() { keepListening(ctx, d.MetricsAddress, numbers) })
	servers.Wait()
	return nil
}

// keepListening serves until ctx ends. If it cannot listen, it tries again later. The daemon does
// not end because of it: pods need their network.
func keepListening(ctx context.Context, address string, handler http.Handler) {
	untilDone(ctx, listenRetry, "serving health or metrics", func() error { return listenHTTP(ctx, address, handler) })
}

// untilDone calls f until it succeeds or ctx ends, with a pause after a failure. It logs the first of
// each 16 failures in a row as what f does. It reports whether f has succeeded.
func untilDone(ctx context.Context, pause time.Duration, doing string, f func() error) bool {
	tries := 0
	err := wait.PollUntilContextCancel(ctx, pause, true, func(ctx context.Context) (bool, error) {
		err := f()
		if tries++; err != nil && ctx.Err() == nil && tries%16 == 1 {
			logr.FromContextOrDiscard(ctx).Error(err, doing+", will try again", "after", pause.String())
		}
		return err == nil, nil
	})
	return err == nil
}

// readyz gives the same answer as STATUS.
func (d *Daemon) readyz(w http.ResponseWriter, r *http.Request) {
	if err := d.ready(r.Context()); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "ok")
}

func listenHTTP(ctx context.Context, address string, handler http.Handler) error {
	if address == "" || address == "0" {
		return nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", address)
	if err != nil {
		return fmt.Errorf("serving HTTP on %s: %w", address, err)
	}
	server := new(connections).server(handler)
	context.AfterFunc(ctx, func() { _ = server.Close() })
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serving HTTP on %s: %w", address, err)
	}
	return nil
}
