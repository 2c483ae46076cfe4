// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package collector compares what the cloud has of this cluster with the objects that
// are to name it. What no object names in looks a grace period apart is deleted; an
// object whose part of the cloud is gone is looked at by who applies it. It knows no
// more of them than a few functions, and writes no object.
//
// Each kind of thing has a loop of its own that runs while this process leads and looks
// at intervals of the configuration, with lists and not one by one; nothing else wakes
// it. Between loops nothing is shared.
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
