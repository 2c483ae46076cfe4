// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestLateChangeOfACrashedProcess: the last request of a process that has crashed takes effect after this
// process has made the load balancer as wanted. It is put right without any event. Objects that were at
// rest, and those of a process that has given them away, are not asked for again.
func TestLateChangeOfACrashedProcess(t *testing.T) {
	for name, tc := range map[string]struct{ crashed, unsettled, checked bool }{
		"crashed":              {true, true, true},
		"crashed, all at rest": {true, false, false},
		"given away":           {false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			b, gate := balancerBed(t), shards.NewGate(nil)
			b.shards = gate
			b.set(func(s *settings.Settings) {
				s.Services.CheckInterval.Duration, s.Orphans.Interval.Duration = time.Hour, time.Hour
			})
			gate.Open(t.Context(), shard.All(), false)
			b.start()
			b.balancer("web")
			b.realised("web")
			b.lost(gate, namespaceBucket("default"))
			if tc.unsettled { // the other process was at it
				b.respec("web", func(s *v1.KuryrLoadBalancerSpec) { s.Listeners[0] = balancerPort(80, 3) })
			}
			klb := b.klb("web")
			b.eventually("the cache shows it", func() bool {
				var is v1.KuryrLoadBalancer
				err := b.manager.GetCache().Get(t.Context(), client.ObjectKeyFromObject(klb), &is)
				return err == nil && !kube.Older(is.ResourceVersion, klb.ResourceVersion)
			})
			gate.Open(t.Context(), namespaceBucket("default"), tc.crashed)
			b.realised("web")
			right := b.tree("web").Listeners[0].Pool.Members
			b.cloud.EditLoadBalancer(b.tree("web").ID, func(lb *sdn.LoadBalancer) { lb.Listeners[0].Pool.Members = nil })
			is := func() bool { return len(b.tree("web").Listeners[0].Pool.Members) == len(right) }
			if tc.checked {
				b.eventually("the late change is put right", is)
				return
			}
			for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
				if is() {
					t.Fatal("the cloud was asked again")
				}
			}
		})
	}
}

// TestLateChangeOfANetwork: likewise for the network of a namespace.
func TestLateChangeOfANetwork(t *testing.T) {
	b, gate := newNetBed(t, "namespace"), shards.NewGate(nil)
	b.shards = gate
	b.set(func(s *settings.Settings) {
		s.Services.CheckInterval.Duration, s.Orphans.Interval.Duration = time.Hour, time.Hour
	})
	own := namespaceBucket(b.namespace)
	gate.Open(t.Context(), shard.All().Minus(own).With(shard.Bucket("task", "networks")), false)
	b.start()
	b.makeNamespace(b.namespace, nil)
	b.waiting(b.namespace, "web")
	b.eventually("the network is planned", func() bool { return b.kn(b.namespace) != nil && len(b.kn(b.namespace).Spec.Subnets) > 0 })
	b.followed(b.kn(b.namespace))
	gate.Open(t.Context(), own, true)
	kn := b.ready(b.namespace)
	wrong := []netip.Addr{netip.MustParseAddr("192.0.2.66")}
	id := kn.Status.Subnets[0].ID
	b.cloud.EditSubnet(id, func(s *sdn.SubnetUpdate) { s.DNSServers = wrong })
	b.eventually("the late change is put right", func() (right bool) {
		b.cloud.EditSubnet(id, func(s *sdn.SubnetUpdate) { right = !slices.Equal(s.DNSServers, wrong) })
		return right
	})
}

// TestLateSpec: a spec that is written late, after its object was deleted, makes no object. Nor does it change
// the next one of that name.
func TestLateSpec(t *testing.T) {
	b := newServiceBed(t)
	objects := kube.NewObject(b.client, &v1.KuryrLoadBalancer{}, "KuryrLoadBalancer", kube.OwnerService, v1.LoadBalancerFinalizer)
	klb := func(provider string) *v1.KuryrLoadBalancer {
		return &v1.KuryrLoadBalancer{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web"},
			Spec:       v1.KuryrLoadBalancerSpec{Provider: provider, VIPs: []v1.VIPAddress{vip4}},
		}
	}
	is := klb("")
	if err := objects.Apply(t.Context(), nil, is, &is.Spec); err != nil {
		t.Fatal(err)
	}
	late := func(rejected func(error) bool) {
		t.Helper()
		next := is.DeepCopy()
		next.Spec.Provider = "late"
		if err := objects.Apply(t.Context(), is, next, &next.Spec); !rejected(err) {
			t.Errorf("error %v", err)
		}
	}
	b.delete(is)
	late(apierrors.IsConflict)
	if other := b.balancerOf("web"); other != nil {
		t.Errorf("there is %+v", other)
	}
	next := klb("ovn")
	if err := objects.Apply(t.Context(), nil, next, &next.Spec); err != nil {
		t.Fatal(err)
	}
	late(apierrors.IsInvalid)
	if other := b.balancerOf("web"); other.Spec.Provider != "ovn" || other.UID != next.UID {
		t.Errorf("there is %+v", other)
	}
}
