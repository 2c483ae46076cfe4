// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var servicesBlocked = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "kuryr_services_blocked",
	Help: "1 while Services are to be served and the API server lacks a kind for it, or the controller a permission.",
})

func init() { metrics.Registry.MustRegister(servicesBlocked) }
