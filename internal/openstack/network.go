// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package openstack

import (
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// neutronConfig says whose ports they are, and how long what Neutron has told counts.
type neutronConfig struct {
	// ClusterID marks what belongs to this cluster.
	ClusterID string
	// RequestTimeout bounds the wait for another change of the same port.
	RequestTimeout time.Duration
	// CacheAge bounds how old the details of a subnet or network may be.
	CacheAge time.Duration
}

// neutronPart is one cluster's view of one Neutron. It is safe for concurrent use.
type neutronPart struct {
	*client
	config  neutronConfig
	details *details
	known   *known
	parents parents
	listed  atomic.Bool // all ports have been listed once

	extensions singleflight.Group
	mu         sync.Mutex
	tagged     *bool // may a creating call carry tags? nil: not asked yet
}

var (
	_ sdn.Ports          = (*neutronPart)(nil)
	_ sdn.Hosts          = (*neutronPart)(nil)
	_ sdn.Capacity       = (*neutronPart)(nil)
	_ sdn.Adoption       = (*neutronPart)(nil)
	_ sdn.SecurityGroups = (*neutronPart)(nil)
	_ sdn.FloatingIPs    = (*neutronPart)(nil)
	_ sdn.Subnets        = (*neutronPart)(nil)
)

// newNeutron returns Neutron as s reaches it. It asks nothing.
func newNeutron(s *client, c neutronConfig) *neutronPart {
	return &neutronPart{client: s, config: c, details: newDetails(s, c.CacheAge), known: newKnown()}
}
