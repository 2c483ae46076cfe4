// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Metrics makes metrics that the manager serves. A name that stands twice is a panic at the start.
var Metrics = promauto.With(metrics.Registry)

// Gauge returns a gauge that the manager serves.
func Gauge(name, help string) prometheus.Gauge {
	return Metrics.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// GaugeOf returns a gauge for each value of a label.
func GaugeOf(label, name, help string) *prometheus.GaugeVec {
	return Metrics.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, []string{label})
}

// Counter returns a counter that the manager serves.
func Counter(name, help string) prometheus.Counter {
	return Metrics.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
}

// CounterOf returns a counter for the values of labels.
func CounterOf(labels []string, name, help string) *prometheus.CounterVec {
	return Metrics.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}
