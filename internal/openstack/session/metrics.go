// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package session

import (
	"errors"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// metrics counts all requests, logins included.
type metrics struct {
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(r prometheus.Registerer) *metrics {
	return &metrics{
		requests: registered(r, prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "kuryr_cloud_requests_total",
			Help: "HTTP requests to the cloud, by status code; none if there was no answer.",
		}, []string{"service", "verb", "resource", "code"})),
		seconds: registered(r, prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "kuryr_cloud_request_duration_seconds",
			Help:    "Time from the sending of a request to the first byte of the answer.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 14),
		}, []string{"service", "verb", "resource"})),
	}
}

// gauges show the state of a throttle.
type gauges struct{ rate, away prometheus.Gauge }

func newGauges(r prometheus.Registerer, service string) gauges {
	label := map[string]string{neutron: "network", Octavia: "load-balancer"}[service]
	return gauges{registered(r, prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "kuryr_cloud_request_rate_limit",
		Help:        "Current limit of requests a second.",
		ConstLabels: prometheus.Labels{"service": label},
	})), registered(r, prometheus.NewGauge(prometheus.GaugeOpts{
		Name:        "kuryr_cloud_outage",
		Help:        "1 while a service of the cloud (Octavia, Neutron) answers nothing: only a probe is sent.",
		ConstLabels: prometheus.Labels{"service": service},
	}))}
}

// registered registers c, or returns the one registered before: two backends in one process count
// together. A nil r registers nothing.
func registered[C prometheus.Collector](r prometheus.Registerer, c C) C {
	if r == nil {
		return c
	}
	err := r.Register(c)
	var twice prometheus.AlreadyRegisteredError
	if errors.As(err, &twice) {
		return twice.ExistingCollector.(C)
	} else if err != nil {
		panic(err) // a name stands twice
	}
	return c
}

// around counts requests through next and measures their time.
func (m *metrics) around(next http.RoundTripper) http.RoundTripper {
	return promhttp.RoundTripperFunc(func(r *http.Request) (*http.Response, error) {
		service, resource := labels(r.URL.Path)
		begun := time.Now()
		response, err := next.RoundTrip(r)
		m.seconds.WithLabelValues(service, r.Method, resource).Observe(time.Since(begun).Seconds())
		code := "none"
		if err == nil {
			code = strconv.Itoa(response.StatusCode)
		}
		m.requests.WithLabelValues(service, r.Method, resource, code).Inc()
		return response, err
	})
}

// labels finds service and resource in a path. What it does not know is other:
// an ID must not become a label.
func labels(path string) (service, resource string) {
	segments := strings.Split(strings.Trim(path, "/"), "/")
	last := segments[len(segments)-1]
	for _, s := range segments {
		switch s {
		case "tokens", "projects":
			return "identity", s
		case "trunks", "routers":
			if slices.Contains([]string{"add_subports", "remove_subports", "add_router_interface", "remove_router_interface"}, last) {
				return "network", last
			}
			return "network", s
		case "ports", "subnets", "networks", "extensions", "quotas", "network-ip-availabilities", "floatingips", "service-providers",
			"security-groups", "security-group-rules":
			return "network", s
		case "lbaas":
			return "load-balancer", balancerResource(segments)
		}
	}
	return "other", "other"
}

// balancerResource finds the resource in a path of the load-balancing API.
func balancerResource(segments []string) string {
	for _, s := range slices.Backward(segments) {
		switch s {
		case "loadbalancers", "listeners", "pools", "members", "healthmonitors", "providers", "failover":
			return s
		}
	}
	return "other"
}
