// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package collector compares what the cloud has of this cluster with the objects that
// are to name it. What no object names in two looks a grace period apart is deleted, or,
// if it is a port that a pool can use, given to the pool. An object whose part of the
// cloud is gone is reconciled by the package that applies it. The collector writes no
// object.
//
// Each kind has a loop of its own that runs while this process leads. It looks at
// intervals of the configuration, with lists and not one by one. The loop of ports also
// looks soon after another part has said that there may be a port that no object names.
// The loops share nothing.
package collector

import (
	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

var balancerOrphansDeleted = prometheus.NewCounterVec(prometheus.CounterOpts{
	Name: "kuryr_loadbalancer_orphans_deleted_total",
	Help: "Load balancers, floating IPs and security groups of this cluster that belonged to nobody and were deleted.",
}, []string{"kind"})

func init() { metrics.Registry.MustRegister(balancerOrphansDeleted) }
