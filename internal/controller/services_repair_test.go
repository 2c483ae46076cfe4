// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestLostMembers: OVN's provider has forgotten members that Octavia has, as after a kill of
// Octavia's API. It refuses to delete them, for ever. The Service follows its endpoints within a
// minute all the same, with the pauses of production.
func TestLostMembers(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED: it waits for pauses of production; 'make long' runs it")
	}
	alone(t)
	b := newSimBed(t)
	b.launch(1000)
	before, after := addresses(0, 2), addresses(1, 2) // one stays, one is removed, one is added
	b.service("web", ports(3), by("ovn"))
	s := b.sliceWith(3, "web", before)
	b.eventuallyIn(time.Minute, "it is in the cloud", func() bool { return b.atRest("web", 3, before) })
	for _, m := range b.balancerOf("web").Status.Members {
		if err := b.api.LoseMember(m.ID); err != nil {
			t.Fatal(err)
		}
	}
	s.Endpoints = endpointsAt(after...)
	if err := b.client.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	b.eventuallyIn(time.Minute, "the members are others", func() bool { return b.atRest("web", 3, after) })
	if diff := cmp.Diff(wanted(3, after), b.membersOf()["web"]); diff != "" {
		t.Errorf("members (-want +got):\n%s", diff)
	}
}

// TestRepairGoesUp: a part that cannot be repaired in place is replaced one level higher, and the
// addresses stay.
func TestRepairGoesUp(t *testing.T) {
	for _, tc := range []struct {
		name  string
		of    func(*sdn.LoadBalancer) (ids []string, state []*sdn.Provisioning)
		stays bool // the load balancer stays
	}{
		{"from a member to the pool", func(lb *sdn.LoadBalancer) ([]string, []*sdn.Provisioning) {
			var ids []string
			var all []*sdn.Provisioning
			members := lb.Listeners[0].Pool.Members
			for i := range members {
				ids, all = append(ids, members[i].ID), append(all, &members[i].Provisioning)
			}
			return ids, all
		}, true},
		{"from a pool to the listener", func(lb *sdn.LoadBalancer) ([]string, []*sdn.Provisioning) {
			p := lb.Listeners[0].Pool
			return []string{p.ID}, []*sdn.Provisioning{&p.Provisioning}
		}, true},
		{"from a listener to the load balancer", func(lb *sdn.LoadBalancer) ([]string, []*sdn.Provisioning) {
			l := &lb.Listeners[0]
			return []string{l.ID}, []*sdn.Provisioning{&l.Provisioning}
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := balancerBed(t)
			b.start()
			b.balancer("web", public)
			before := b.realised("web").Status
			id := before.LoadBalancers[0].ID
			b.stop()
			b.set(func(s *settings.Settings) { s.Services.CheckInterval.Duration = 300 * time.Millisecond })
			b.cloud.EditLoadBalancer(id, func(lb *sdn.LoadBalancer) {
				_, all := tc.of(lb)
				for _, state := range all {
					*state = sdn.ProvisioningError
				}
			})
			ids, _ := tc.of(b.tree("web"))
			for _, id := range ids {
				b.cloud.KeepInError(id)
			}
			b.start()
			b.eventuallyIn(time.Minute, "it works again", func() bool {
				lb := b.tree("web")
				if lb == nil || len(lb.Listeners) != len(before.Listeners) || lb.Provisioning != sdn.ProvisioningActive {
					return false
				}
				for _, l := range lb.Listeners {
					if l.Provisioning != sdn.ProvisioningActive || l.Pool == nil || l.Pool.Provisioning != sdn.ProvisioningActive {
						return false
					}
				}
				_, left := tc.of(lb)
				for _, state := range left {
					if *state != sdn.ProvisioningActive {
						return false
					}
				}
				return len(left) > 0 && cmp.Equal(served, b.serves("web")) && b.publicOf(lb) == before.PublicIP.IP
			})
			after := b.realised("web").Status
			if same := after.LoadBalancers[0].ID == id; same != tc.stays || after.LoadBalancers[0].IP != before.LoadBalancers[0].IP {
				t.Errorf("load balancer %+v, before it was %+v", after.LoadBalancers[0], before.LoadBalancers[0])
			}
			if diff := cmp.Diff(before.PublicIP, after.PublicIP); diff != "" {
				t.Errorf("floating IP (-before +after):\n%s", diff)
			}
			b.mentions("Event", b.eventOn("web", v1.ReasonLoadBalancerInError), "Kuryr tries to")
		})
	}
}
