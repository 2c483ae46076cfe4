// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"testing"

	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestKeepsUDPClients: only a UDP listener of the provider that does so is remarked on.
func TestKeepsUDPClients(t *testing.T) {
	keeps := sdn.Features{Provider: "ovn", KeepsUDPClients: true}
	of := func(provider string, protocols ...string) []sdn.LoadBalancer {
		lb := sdn.LoadBalancer{Provider: provider}
		for _, p := range protocols {
			lb.Listeners = append(lb.Listeners, sdn.Listener{Protocol: p})
		}
		return []sdn.LoadBalancer{{Provider: provider}, lb}
	}
	for name, tc := range map[string]struct {
		have []sdn.LoadBalancer
		f    sdn.Features
		want bool
	}{
		"UDP beside TCP":                 {of("ovn", "TCP", "UDP"), keeps, true},
		"TCP and SCTP":                   {of("ovn", "TCP", "SCTP"), keeps, false},
		"the provider forgets them":      {of("amphora", "UDP"), sdn.Features{Provider: "amphora"}, false},
		"another provider still serves":  {of("amphora", "UDP"), keeps, false},
		"no load balancer exists so far": {nil, keeps, false},
	} {
		r := balancer.Result{Found: balancer.Found{Trees: tc.have, Features: tc.f}}
		if got := r.Remark(); (got != "") != tc.want {
			t.Errorf("%s: Remark = %q, want one: %t", name, got, tc.want)
		}
	}
}
