// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancer_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestLessonsTakeNothingAway: a provider has refused a feature to another Service, so its
// features are fewer than before. What serves stays, and follows the spec. What is broken
// proves no feature, nor does another provider's load balancer.
func TestLessonsTakeNothingAway(t *testing.T) {
	w := newWorld(t)
	able := balancer.Everything()
	able.Provider, able.Algorithm = "clever", "ROUND_ROBIN"
	w.cloud.SetProvider(memory.Provider{Features: able})
	w.klb.Spec.Provider = "clever"
	w.klb.Spec.Listeners = []v1.ListenerSpec{port("TCP", 80, 1, 2), port("UDP", 80, 1), port("SCTP", 90, 1)}
	tcp, udp := &w.klb.Spec.Listeners[0], &w.klb.Spec.Listeners[1]
	tcp.ProxyProtocol, tcp.AffinitySeconds, tcp.Algorithm, tcp.Monitor = "PROXY", new(int32), "LEAST_CONNECTIONS", monitor("HTTP", 5)
	*tcp.AffinitySeconds = 10800
	udp.Members[0].SubnetID = pods
	w.settle()
	have, err := w.trees(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dull := sdn.Features{Provider: "clever", Protocols: []string{"TCP"}, Algorithm: "ROUND_ROBIN", Algorithms: []string{"ROUND_ROBIN"}}
	next := func(f sdn.Features) []string {
		var all []string
		for _, s := range balancer.Next(balancer.Input{LoadBalancer: w.klb, Trees: have, Features: f, Now: w.now, Pause: pause}).Steps {
			all = append(all, s.String())
		}
		return withoutIDs(all)
	}
	if steps := next(dull); len(steps) < 4 {
		t.Fatalf("without a look at what serves: %q, want that this test is about something", steps)
	}
	if steps := next(balancer.Proven(dull, have)); len(steps) > 0 {
		t.Errorf("steps %q, want none", steps)
	}
	udp.Members = append(udp.Members, member(3))
	if diff := cmp.Diff([]string{"change members of pool shop/web:UDP:80: add 1, remove 0"}, next(balancer.Proven(dull, have))); diff != "" {
		t.Errorf("steps when an endpoint comes (-want +got):\n%s", diff)
	}
	other := dull
	other.Provider = "other"
	if diff := cmp.Diff(other, balancer.Proven(other, have)); diff != "" {
		t.Errorf("another provider (-want +got):\n%s", diff)
	}
	for i := range have[0].Listeners {
		have[0].Listeners[i].Provisioning = sdn.ProvisioningError
	}
	if diff := cmp.Diff(dull, balancer.Proven(dull, have)); diff != "" {
		t.Errorf("listeners in ERROR (-want +got):\n%s", diff)
	}
}

// TestKeepsUDPClients: only a UDP listener of the provider that does so counts.
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
		if got := balancer.KeepsUDPClients(tc.have, tc.f); got != tc.want {
			t.Errorf("%s: KeepsUDPClients = %t, want %t", name, got, tc.want)
		}
	}
}
