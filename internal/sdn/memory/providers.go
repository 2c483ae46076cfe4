// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package memory

import "github.com/kuryr-go/kuryr/internal/sdn"

// UntilSettled as Provider.Busy keeps a load balancer busy until Settle is called.
const UntilSettled = -1

// Provider makes load balancers. A new cloud has two. ovn, the default, is never busy and refuses
// many features. amphora is busy for one call after each change, and so deletes a listener in two
// steps.
type Provider struct {
	// Features also decides what is refused: a feature that it lacks is ErrUnsupported.
	Features sdn.Features
	// Busy is how many calls find a load balancer busy after each of its changes.
	Busy int
	// Halves makes the first DeleteListener delete the pool, and the next one the listener.
	// Octavia does so where each change makes the load balancer busy.
	Halves bool
	// Near requires a member outside of the VIP's subnet to name its subnet. Without one it is
	// ErrUnsupported.
	Near bool
	// Bare makes new load balancers without listeners.
	Bare bool
	// Broken makes each change end in ERROR.
	Broken bool
}

func providers() map[string]*Provider {
	ovn := sdn.Features{
		Provider: "ovn", Protocols: []string{"TCP", "UDP", "SCTP"}, Algorithm: "SOURCE_IP_PORT", Algorithms: []string{"SOURCE_IP_PORT"}, Affinity: true,
		Monitors: []string{"TCP", "UDP-CONNECT"}, KeepsClientAddress: true, KeepsUDPClients: true, ChildrenLater: true, ManyProtocols: true, FarMembers: true,
	}
	amphora := sdn.Features{
		Provider: "amphora", Protocols: []string{"TCP", "UDP", "SCTP"}, Algorithm: "ROUND_ROBIN",
		Algorithms: []string{"ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP"}, Affinity: true, AffinityTimeout: true,
		SourceRanges: true, Timeouts: true, ConnectionLimit: true, Monitors: []string{"TCP", "UDP-CONNECT", "SCTP", "HTTP"},
		ProxyProtocol: true, ManyProtocols: true, FailOver: true, FarMembers: true,
	}
	o := &Provider{Features: ovn, Near: true}
	return map[string]*Provider{"": o, "ovn": o, "amphora": {Features: amphora, Busy: 1, Halves: true}}
}

// SetProvider adds a provider, or replaces the provider of the same name.
func (c *Cloud) SetProvider(p Provider) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := p.Features.Provider
	if c.providers[""].Features.Provider == name {
		c.providers[""] = &p
	}
	c.providers[name] = &p
}

// HideDefault hides the name of the default provider until a load balancer without a provider has
// been created. Until then callers guess amphora.
func (c *Cloud) HideDefault() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.hidden = true
}
