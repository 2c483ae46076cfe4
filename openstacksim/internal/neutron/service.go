// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package neutron

import (
	"sync"
	"time"
)

// Options are the settings of a service. URL, NewID, Now and After are required.
type Options struct {
	URL   string           // public prefix, for links
	NewID func() string    // returns UUIDs, seeded by the caller; safe for concurrent use
	Now   func() time.Time // for time stamps only
	// After runs f later in a goroutine of its own. If d is not positive, it runs f before it
	// returns. The service calls it without holding its lock.
	After func(d time.Duration, f func())
	Hosts []string // the chassis with OVN Controller agents; ports can be bound to them
	// OVS are those of Hosts that have neutron-openvswitch-agent instead, and whether its firewall
	// driver is iptables_hybrid.
	OVS map[string]bool
	// Active returns how long a bound port takes to become ACTIVE. false means that only Plug
	// makes it ACTIVE. nil is false for all ports.
	Active func(portID string) (time.Duration, bool)
	// Quota replaces default limits by resource ("port", "security_group"); -1 is no limit. Other
	// resources keep Neutron's defaults.
	Quota map[string]int
	// Policy replaces access rules, as policy.yaml does: {"create_port:binding:host_id": "role:member"}.
	// An attribute whose rule of reading is replaced is shown to all.
	Policy map[string]string
	Later  bool // Neutron is 26.0.3 (2025.1), not 21.0.0 (Zed)
}

// Service is Neutron. It is safe for concurrent use.
type Service struct {
	Options
	api *api

	mu      sync.Mutex
	kinds   map[string]handler // by path: "security-groups"
	actions []action
	quotas  quotas
	// rewritten are the rules of Policy, parsed.
	rewritten map[string]check

	segments    map[segment]string // → the network that has taken it
	lastSegment int                // the last geneve number taken

	networks    *kind[network]
	subnets     *kind[subnet]
	subnetPools *kind[subnetPool]
	routers     *kind[router]
	floatingIPs *kind[floatingIP]
	portKinds
	agentIDs []string        // in the order of Hosts
	dead     map[string]bool // hosts whose agent is not alive
}

// New returns a service with only the resources that every Neutron has.
func New(o Options) *Service {
	if o.Active == nil {
		o.Active = func(string) (time.Duration, bool) { return 0, false }
	}
	s := &Service{
		Options: o, api: ofZed(), kinds: map[string]handler{}, dead: map[string]bool{},
		quotas: newQuotas(o.Quota), rewritten: map[string]check{},
	}
	if o.Later {
		s.api = of2025()
	}
	for name, rule := range o.Policy {
		s.rewritten[name] = parseCheck(rule)
	}
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
