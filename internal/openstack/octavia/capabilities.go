// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package octavia

import (
	"errors"
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// capability is something that a provider may be able to do. Octavia does not show it, so that a
// provider which is not known by name shows it by what it serves and by what it refuses.
//
// Features that keep clients out, such as source ranges, are no capabilities. To leave them out
// after a refusal would let all clients in, so they are requested, and refused, each time.
type capability struct{ provider, name string }

// The names of capabilities. The last three are followed by a name of Octavia's.
const (
	proxied  = "PROXY"
	affine   = "affinity"
	far      = "members of other subnets"
	failing  = "failover"
	protocol = "protocol "
	monitor  = "monitor "
	balances = "algorithm "
)

// learn notes that a provider has refused a request that needs these capabilities, of which the
// fewest providers have the first. That one counts that is not known yet: what a provider was seen
// to do it can do, and if the refusal was for another reason, the next one shows it. Another error
// than ErrUnsupported shows nothing.
func (l *balancers) learn(err error, provider string, names ...string) {
	if !errors.Is(err, sdn.ErrUnsupported) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range names {
		if _, known := l.able[capability{provider, name}]; !known {
			l.able[capability{provider, name}] = false
			return
		}
	}
}

// restrict removes from f what its provider has refused.
func (l *balancers) restrict(f *sdn.Features) {
	l.mu.Lock()
	defer l.mu.Unlock()
	can := func(name string) bool {
		is, known := l.able[capability{f.Provider, name}]
		return is || !known
	}
	those := func(kind string, all []string) []string {
		return slices.DeleteFunc(slices.Clone(all), func(one string) bool { return !can(kind + one) })
	}
	f.Affinity = f.Affinity && can(affine)
	f.AffinityTimeout = f.AffinityTimeout && f.Affinity
	f.AffinityUnsure = f.AffinityUnsure && f.Affinity
	f.ProxyProtocol = f.ProxyProtocol && can(proxied)
	f.FailOver = f.FailOver && can(failing)
	f.FarMembers = f.FarMembers && can(far)
	f.Protocols, f.Monitors = those(protocol, f.Protocols), those(monitor, f.Monitors)
	if some := those(balances, f.Algorithms); len(some) > 0 {
		f.Algorithms = some
	}
	f.Algorithm = f.Algorithms[0]
}

// usedBy returns the capabilities that a pool needs for itself, without its members and its monitor.
func usedBy(p sdn.Pool) (names []string) {
	if strings.HasPrefix(p.Protocol, "PROXY") {
		names = append(names, proxied)
	}
	if p.AffinitySeconds != nil {
		names = append(names, affine)
	}
	if p.Algorithm != "" {
		names = append(names, balances+p.Algorithm)
	}
	return names
}

// show notes the capabilities that a load balancer shows of its provider.
func (l *balancers) show(lb sdn.LoadBalancer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	active := func(p sdn.Provisioning) bool { return p == sdn.ProvisioningActive }
	for _, listener := range lb.Listeners {
		var names []string
		if active(listener.Provisioning) {
			names = append(names, protocol+listener.Protocol)
		}
		if p := listener.Pool; p != nil && active(p.Provisioning) {
			names = append(names, usedBy(*p)...)
			if p.Monitor != nil {
				names = append(names, monitor+p.Monitor.Type)
			}
			if slices.ContainsFunc(p.Members, func(m sdn.Member) bool {
				return active(m.Provisioning) && m.SubnetID != "" && m.SubnetID != lb.VIP.SubnetID
			}) {
				names = append(names, far)
			}
		}
		for _, name := range names {
			l.able[capability{lb.Provider, name}] = true
		}
	}
}
