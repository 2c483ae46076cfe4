// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"sync"
	"time"
)

// Options say what a service is to behave like. URL, NewID, Now and After are
// needed.
type Options struct {
	URL   string           // public prefix, for links
	NewID func() string    // UUIDs, seeded by the caller; safe for concurrent use
	Now   func() time.Time // for stamps only
	// After runs f later in a goroutine of its own (d <= 0: at once, before After
	// returns). It is never called with the service's lock held.
	After func(d time.Duration, f func())
	Hosts []string // live chassis: OVN Controller agents; ports can be bound to them
	// Active says how long a bound port takes to become ACTIVE; false: never by
	// itself, then Plug makes it so. nil is false for all.
	Active func(portID string) (time.Duration, bool)
	// Quota replaces default limits by resource ("port", "security_group"); -1 is
	// none. What is not named has Neutron's own default.
	Quota map[string]int
}

// Service is Neutron. It is safe for concurrent use.
type Service struct {
	Options

	mu      sync.Mutex
	kinds   map[string]handler // by path: "security-groups"
	actions []action
	quotas  quotas

	segments    map[segment]string // taken by which network
	lastSegment int                // the last geneve number given out

	networks    *kind[network]
	subnets     *kind[subnet]
	subnetPools *kind[subnetPool]
	routers     *kind[router]
	floatingIPs *kind[floatingIP]
	portKinds
	agentIDs []string // by the order of Hosts
}

// New returns a service that holds nothing but what every Neutron has.
func New(o Options) *Service {
	if o.Active == nil {
		o.Active = func(string) (time.Duration, bool) { return 0, false }
	}
	s := &Service{Options: o, kinds: map[string]handler{}, quotas: newQuotas(o.Quota)}
	s.registerNetworks()
	s.registerSubnets()
	s.registerSubnetPools()
	s.registerPorts()
	s.registerRouters()
	s.registerFloatingIPs()
	for range o.Hosts {
		s.agentIDs = append(s.agentIDs, o.NewID())
	}
	return s
}
