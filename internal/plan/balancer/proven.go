// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer

import (
	"slices"
	"strings"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Proven returns f with the features that load balancers of its provider prove. A missing
// feature is mostly learned from a refused request. The refusal may have had another reason,
// and may have been about another Service, so it is no reason to take away what serves. f is
// not changed.
func Proven(f sdn.Features, have []sdn.LoadBalancer) sdn.Features {
	f.Protocols, f.Monitors, f.Algorithms = slices.Clone(f.Protocols), slices.Clone(f.Monitors), slices.Clone(f.Algorithms)
	for i := range have {
		if lb := &have[i]; lb.Provider == f.Provider {
			proveBalancer(&f, lb)
		}
	}
	return f
}

// KeepsUDPClients reports whether some load balancer of the provider has a UDP listener whose
// clients stay with removed members.
func KeepsUDPClients(have []sdn.LoadBalancer, f sdn.Features) bool {
	return f.KeepsUDPClients && slices.ContainsFunc(have, func(lb sdn.LoadBalancer) bool {
		return lb.Provider == f.Provider && slices.ContainsFunc(lb.Listeners, func(l sdn.Listener) bool { return l.Protocol == "UDP" })
	})
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

// failed reports whether an object does not serve. A busy one most likely does.
func failed(p sdn.Provisioning) bool {
	return p == sdn.ProvisioningError || p == sdn.ProvisioningDeleted
}

// with returns all with one added, unless it is in all already.
func with(all []string, one string) []string {
	if slices.Contains(all, one) {
		return all
	}
	return append(all, one)
}
