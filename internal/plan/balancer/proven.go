// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Proven returns f with what load balancers of its provider show that this can do. What
// it cannot is mostly learned, from a request that it has refused, maybe for another
// reason, and maybe one of another Service: that is no reason to take away what serves.
// f is not changed.
func Proven(f sdn.Features, have []sdn.LoadBalancer) sdn.Features {
	f.Protocols, f.Monitors, f.Algorithms = slices.Clone(f.Protocols), slices.Clone(f.Monitors), slices.Clone(f.Algorithms)
	for i := range have {
		if lb := &have[i]; lb.Provider == f.Provider {
			proveBalancer(&f, lb)
		}
	}
	return f
}

func proveBalancer(f *sdn.Features, lb *sdn.LoadBalancer) {
	on := map[int32]bool{}
	for i := range lb.Listeners {
		l := &lb.Listeners[i]
		if failed(l.Provisioning) {
			continue
		}
		f.ManyProtocols = f.ManyProtocols || on[l.Port]
		on[l.Port] = true
		f.Protocols = with(f.Protocols, l.Protocol)
		if l.Pool != nil && !failed(l.Pool.Provisioning) {
			provePool(f, lb, l.Pool)
		}
	}
}

func provePool(f *sdn.Features, lb *sdn.LoadBalancer, p *sdn.Pool) {
	f.ProxyProtocol = f.ProxyProtocol || strings.HasPrefix(p.Protocol, "PROXY")
	f.Affinity = f.Affinity || p.AffinitySeconds != nil
	if p.Algorithm != "" {
		f.Algorithms = with(f.Algorithms, p.Algorithm)
	}
	if p.Monitor != nil {
		f.Monitors = with(f.Monitors, p.Monitor.Type)
	}
	f.FarMembers = f.FarMembers || slices.ContainsFunc(p.Members, func(m sdn.Member) bool {
		return !failed(m.Provisioning) && m.SubnetID != "" && !sdn.SameID(m.SubnetID, lb.VIP.SubnetID)
	})
}

// failed reports whether something does not serve. What is busy did, most likely.
func failed(p sdn.Provisioning) bool {
	return p == sdn.ProvisioningError || p == sdn.ProvisioningDeleted
}

// with returns all with one among them.
func with(all []string, one string) []string {
	if slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}
