// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var balancerOrphansDeleted = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kuryr_loadbalancer_orphans_deleted_total",
	Help: "Load balancers, floating IPs and security groups of this cluster that belonged to nobody and were deleted.",
}, []string{"kind"})

func init() { metrics.Registry.MustRegister(balancerOrphansDeleted) }
