// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package neutron sends Kuryr's requests to Neutron: ports (separate, on trunks, or as address
// pairs of another port), security groups, floating IPs, networks and subnets. It knows Neutron's fields
// (wire.go). The package session interprets the status of answers; the package octavia handles load
// balancers.
//
// A port costs one POST (one for a whole batch) and one DELETE. Subnets and networks are read once
// and kept for a while. Before a port is changed or deleted its mark is checked. A port that this
// process has made or listed needs no request for that.
package neutron

import (
	"sync"
	"sync/atomic"

	"github.com/puzpuzpuz/xsync/v4"

	"github.com/kuryr-go/kuryr/internal/openstack/session"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Neutron is one cluster's view of one Neutron. It is safe for concurrent use.
type Neutron struct {
	*session.Client
	details *details
	// known are ports whose mark this process has seen, so that changing or deleting one needs no look
	// at it first. After a restart it fills again by itself.
	known   *xsync.Map[string, place]
	nets    sync.Map // IDs of networks and subnets whose mark was seen: what is made in them needs no look at it
	parents parents
	sights  sdn.Answers[sight, error] // nil, or ErrForbidden
	leaving trunkRemovals
	roomy   sdn.Answers[string, []string] // subnets that had room, by what the request names
	listed  atomic.Bool                   // all ports have been listed once

	extensions sdn.Answers[struct{}, []string]
}

// New returns Neutron as s reaches it. It asks nothing.
func New(s *session.Client) *Neutron {
	return &Neutron{Client: s, details: &details{client: s, age: s.Config.CacheAge}, known: xsync.NewMap[string, place]()}
}
