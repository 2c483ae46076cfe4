// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"cmp"
	"slices"
	"strings"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// lesson is what a provider has refused, and what it was seen to do. Features that keep clients
// out, such as source ranges, are never learned this way. To leave them out after one refusal
// would let all clients in, so they are requested, and refused, each time.
type lesson struct {
	not     map[string]bool // what the provider cannot do
	refused map[string]int  // how often it has refused something, since it was last seen to do it
	proved  map[string]bool // what the provider was seen to do
}

// unlearn removes from f what its provider has refused.
func (l *balancers) unlearn(f *sdn.Features) {
	l.mu.Lock()
	defer l.mu.Unlock()
	no := l.lesson(f.Provider).not
	f.Affinity = f.Affinity && !no[affine]
	f.AffinityTimeout = f.AffinityTimeout && f.Affinity
	f.AffinityUnsure = f.AffinityUnsure && f.Affinity
	f.ProxyProtocol = f.ProxyProtocol && !no[proxied]
	f.FailOver = f.FailOver && !no[failing]
	f.FarMembers = f.FarMembers && !no[far]
	f.Protocols = without(f.Protocols, no, protocol)
	f.Monitors = without(f.Monitors, no, monitor)
	if some := without(f.Algorithms, no, balances); len(some) > 0 {
		f.Algorithms = some
	}
	f.Algorithm = f.Algorithms[0]
}

func without(all []string, gone map[string]bool, kind string) []string {
	return slices.DeleteFunc(slices.Clone(all), func(one string) bool { return gone[kind+one] })
}

// The words of a lesson for what a provider was seen to do, or to refuse.
const (
	proxied  = "PROXY"
	affine   = "affinity"
	far      = "members of other subnets"
	failing  = "failover"
	bare     = "bare load balancers"
	protocol = "protocol "
	monitor  = "monitor "
	balances = "algorithm "
)

// learn notes that a provider has refused something, once it has done so this number of times.
// What it was seen to do it can do, whatever the reason of the refusal. To learn otherwise
// would take the feature away from all Services that use it.
func (l *balancers) learn(provider, what string, times int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	no := l.lesson(provider)
	if no.proved[what] {
		return
	}
	if no.refused[what]++; no.refused[what] >= times {
		no.not[what] = true
	}
}

// prove notes what a provider was seen to do.
func (l *balancers) prove(provider string, all ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	no := l.lesson(provider)
	for _, what := range all {
		no.proved[what] = true
		delete(no.not, what)
		delete(no.refused, what)
	}
}

// lesson returns the lesson of a provider, with the lock held.
func (l *balancers) lesson(provider string) *lesson {
	no := l.lessons[provider]
	if no == nil {
		no = &lesson{map[string]bool{}, map[string]int{}, map[string]bool{}}
		l.lessons[provider] = no
	}
	return no
}

func (l *balancers) isBare(provider string, vip v1.VIPAddress) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.refused[vip] || l.lesson(provider).not[bare]
}

// learnBare notes that a load balancer was refused with its children. For the provider, that is
// learned only if the load balancer has nothing special. For this VIP it is noted in any case.
// If the empty load balancer fails, too, because the refused one has left the VIP's port
// behind, the next attempt must not leave a port once more.
func (l *balancers) learnBare(f sdn.Features, lb sdn.LoadBalancer, a api) {
	l.mu.Lock()
	l.refused[lb.VIP] = true
	l.mu.Unlock()
	if isPlain(lb, f, a) {
		l.learn(f.Provider, bare, 1)
	}
}

// plainTimes is how often something without any options has to be refused. A 501 may have been
// about another part of the request, or a mistake.
const plainTimes = 2

// learnListener notes what a provider that refused a new listener cannot do, unless one of the
// options may have been the reason.
func (b *Octavia) learnListener(provider string, l sdn.Listener) {
	options := len(l.SourceRanges) > 0 || l.ConnectionLimit != nil || l.TimeoutClientData != nil || l.TimeoutMemberData != nil ||
		l.TimeoutMemberConnect != nil || l.TimeoutTCPInspect != nil
	if !options && l.Protocol != "TCP" {
		b.balancers.learn(provider, protocol+l.Protocol, plainTimes)
	}
}

// learnPool is learnListener for a pool. If several parts may be the reason, the one that the
// fewest providers support counts. If it was another part, the next refusal shows it. What
// every pool has cannot be the reason where the pool exists already.
func (b *Octavia) learnPool(f sdn.Features, p sdn.Pool, isNew bool) {
	algorithm := cmp.Or(p.Algorithm, f.Algorithm)
	switch {
	case strings.HasPrefix(p.Protocol, proxied):
		b.balancers.learn(f.Provider, proxied, 1)
	case algorithm != f.Algorithm:
		b.balancers.learn(f.Provider, balances+algorithm, 1)
	case p.AffinitySeconds != nil:
		b.balancers.learn(f.Provider, affine, 1)
	case isNew:
		b.balancers.learn(f.Provider, balances+algorithm, plainTimes)
	}
}

// learnMembers is learnListener for members. A refusal by OVN or amphora, such as of a member
// of another IP family, is not about the subnet.
func (b *Octavia) learnMembers(lb at, some []sdn.Member) {
	known := lb.features.Provider == providerOVN || isAmphora(lb.features.Provider)
	if !known && slices.ContainsFunc(some, lb.isFar) {
		b.balancers.learn(lb.features.Provider, far, 1)
	}
}

// provePool notes the features that a pool proves for its provider.
func (b *Octavia) provePool(provider string, p sdn.Pool) {
	all := []string{balances + p.Algorithm}
	if strings.HasPrefix(p.Protocol, proxied) {
		all = append(all, proxied)
	}
	if p.AffinitySeconds != nil {
		all = append(all, affine)
	}
	if p.Monitor != nil {
		all = append(all, monitor+p.Monitor.Type)
	}
	b.balancers.prove(provider, all...)
}

// proveTree notes the features that a load balancer proves for its provider.
func (b *Octavia) proveTree(lb sdn.LoadBalancer) {
	for _, l := range lb.Listeners {
		if l.Provisioning == sdn.ProvisioningActive {
			b.balancers.prove(lb.Provider, protocol+l.Protocol)
		}
		if l.Pool == nil || l.Pool.Provisioning != sdn.ProvisioningActive {
			continue
		}
		b.provePool(lb.Provider, *l.Pool)
		if slices.ContainsFunc(l.Pool.Members, func(m sdn.Member) bool {
			return m.Provisioning == sdn.ProvisioningActive && m.SubnetID != "" && m.SubnetID != lb.VIP.SubnetID
		}) {
			b.balancers.prove(lb.Provider, far)
		}
	}
}

// isPlain reports whether a load balancer has only what every provider supports. A provider
// that refuses such a one accepts no children of a new load balancer.
func isPlain(lb sdn.LoadBalancer, f sdn.Features, a api) bool {
	return !slices.ContainsFunc(lb.Listeners, func(l sdn.Listener) bool {
		p := l.Pool
		return l.Protocol != "TCP" || len(l.SourceRanges) > 0 || p != nil && (p.Protocol != "" && p.Protocol != "TCP" ||
			cmp.Or(p.Algorithm, f.Algorithm) != f.Algorithm || created(*p, a).AffinitySeconds != nil || p.Monitor != nil ||
			slices.ContainsFunc(p.Members, func(m sdn.Member) bool { return m.SubnetID != "" && m.SubnetID != lb.VIP.SubnetID }))
	})
}
