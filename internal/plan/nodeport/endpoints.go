// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package nodeport

import discoveryv1 "k8s.io/api/discovery/v1"

// Local counts the endpoints of a Service's slices that are ready on a node. One
// that has addresses of both families is in slices of both and counts once.
func Local(slices []*discoveryv1.EndpointSlice, node string) int {
	ready := map[discoveryv1.AddressType]map[string]bool{}
	for _, slice := range slices {
		for i := range slice.Endpoints {
			e := &slice.Endpoints[i]
			if !on(e, node) || len(e.Addresses) == 0 || e.Conditions.Ready != nil && !*e.Conditions.Ready {
				continue
			}
			if ready[slice.AddressType] == nil {
				ready[slice.AddressType] = map[string]bool{}
			}
			ready[slice.AddressType][e.Addresses[0]] = true
		}
	}
	most := 0
	for _, addresses := range ready {
		most = max(most, len(addresses))
	}
	return most
}

// Keep returns the endpoints on the node. Local needs no others.
func Keep(endpoints []discoveryv1.Endpoint, node string) []discoveryv1.Endpoint {
	var kept []discoveryv1.Endpoint
	for i := range endpoints {
		if e := &endpoints[i]; on(e, node) {
			kept = append(kept, discoveryv1.Endpoint{Addresses: e.Addresses, Conditions: e.Conditions, NodeName: e.NodeName})
		}
	}
	return kept
}

func on(e *discoveryv1.Endpoint, node string) bool { return e.NodeName != nil && *e.NodeName == node }
