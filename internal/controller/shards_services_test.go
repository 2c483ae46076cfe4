// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// lost closes and loses buckets once the work on them has ended.
func (b *bed) lost(gate *shards.Gate, buckets shard.Set) {
	b.t.Helper()
	gate.Close(buckets)
	b.eventually("the work on what is given away ends", func() bool { return gate.Busy().And(buckets).Len() == 0 })
	gate.Lose(buckets)
}

// namespaceBucket returns the set with the bucket of a namespace.
func namespaceBucket(name string) shard.Set {
	return shard.Set{}.With(shard.Bucket("namespace", name))
}

// TestServicesOfGainedNamespaces: a process plans and applies Services only of namespaces that it owns.
// Meanwhile it asks the cloud nothing of them. One that returns is as after a restart.
func TestServicesOfGainedNamespaces(t *testing.T) {
	b, gate := newWholeBed(t), shards.NewGate(nil)
	b.shards = gate
	b.launch()
	svc := b.service("web", balanced, ports(2))
	s := b.sliceWith(2, "web", []string{"10.1.0.5"})
	b.never("another process's Service is planned", func() bool { return b.balancerOf("web") != nil || len(b.now(svc).Finalizers) > 0 })
	if n := b.bed.writes(); len(n) > 0 {
		t.Errorf("%v by a process that owns nothing", n)
	}

	gate.Open(t.Context(), shard.All(), false)
	b.eventually("it is in the cloud", func() bool { return cmp.Equal(b.serving("web"), wanted(2, []string{"10.1.0.5"})) })
	b.realised("web")

	b.lost(gate, namespaceBucket("default"))
	before := b.bed.writes()
	s.Endpoints = endpointsAt("10.1.0.6", "10.1.0.7")
	if err := b.client.Update(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	b.never("the Service of a lost namespace is planned, or applied", func() bool {
		return len(b.balancerOf("web").Spec.Listeners[0].Members) != 1 || !cmp.Equal(b.bed.writes(), before)
	})

	gate.Open(t.Context(), namespaceBucket("default"), false)
	b.eventually("its members are others", func() bool { return cmp.Equal(b.serving("web"), wanted(2, []string{"10.1.0.6", "10.1.0.7"})) })
	b.realised("web")
	b.delete(svc)
	b.eventually("nothing is left of it", func() bool { return b.balancerOf("web") == nil })
}

// TestPoliciesOfGainedNamespaces: the Event on a NetworkPolicy is sent by the process that has gained its
// namespace, of those that were there before, too.
func TestPoliciesOfGainedNamespaces(t *testing.T) {
	b, gate := idleBed(t), shards.NewGate(nil)
	b.shards = gate
	policy := b.policy("policy")
	b.start()
	b.never("another process's NetworkPolicy gets an Event", func() bool { return len(b.notEnforced(policy)) > 0 })
	gate.Open(t.Context(), shard.All(), false)
	b.eventOn("policy", v1.ReasonNotEnforced)
	b.lost(gate, namespaceBucket("default"))
	other := b.policy("other")
	b.never("it gets one", func() bool { return len(b.notEnforced(other)) > 0 })
	gate.Open(t.Context(), namespaceBucket("default"), true)
	b.eventOn("other", v1.ReasonNotEnforced)
}

// TestNetworksOfGainedKeys: one process plans all networks; that of a namespace is applied by the process
// that has the namespace.
func TestNetworksOfGainedKeys(t *testing.T) {
	b, gate := newNetBed(t, "namespace"), shards.NewGate(nil)
	b.shards = gate
	b.start()
	first, second, third := b.namespace+"-a", b.namespace+"-b", b.namespace+"-c"
	planning := shard.Set{}.With(shard.Bucket("task", "networks"))
	applying := namespaceBucket(first).Or(namespaceBucket(second)).Or(namespaceBucket(third)).Minus(planning)
	b.makeNamespace(first, nil)
	b.waiting(first, "web")
	b.never("another process's network is planned", func() bool { return b.kn(first) != nil })

	gate.Open(t.Context(), planning, false)
	b.eventually("it is planned", func() bool { return b.kn(first) != nil && len(b.kn(first).Spec.Subnets) > 0 })
	if applying.Len() == 3 {
		b.never("another process's network is made", func() bool { return b.kn(first).Status.NetworkID != "" })
	}
	gate.Open(t.Context(), applying, false)
	b.ready(first)

	b.lost(gate, planning)
	b.makeNamespace(second, nil)
	b.waiting(second, "web")
	b.never("the network is planned", func() bool { return b.kn(second) != nil })
	gate.Open(t.Context(), planning, false)
	b.ready(second)
	b.lost(gate, applying)
	b.makeNamespace(third, nil)
	b.waiting(third, "web")
	b.eventually("it is planned", func() bool { return b.kn(third) != nil && len(b.kn(third).Spec.Subnets) > 0 })
	gate.Open(t.Context(), applying, true)
	prefixes := map[string]string{}
	for _, name := range []string{first, second, third} {
		cidr := b.ready(name).Status.Subnets[0].CIDR
		if other := prefixes[cidr]; other != "" {
			t.Errorf("%s and %s have prefix %s", other, name, cidr)
		}
		prefixes[cidr] = name
	}
}

// TestStatusOfAnotherProcess: a process makes ports in the network of a namespace that another process
// owns. After each change of the status it reads the network once, and makes no port by a status that
// names what is not that namespace's.
func TestStatusOfAnotherProcess(t *testing.T) {
	const foreign, foreignSubnet = "5f1c5aac-0000-4000-8000-0000000d0000", "5f1c5aac-0000-4000-8000-0000000d0001"
	b := newNetBed(t, "namespace")
	b.cloud.AddSubnet(memory.Subnet{ID: foreignSubnet, NetworkID: foreign, Prefix: netip.MustParsePrefix("10.99.0.0/24"), MTU: 1442})
	b.start()
	b.makeNamespace(b.namespace, nil)
	b.bound(b.pod("first", inNamespace(b.namespace)))
	kn := b.ready(b.namespace)
	b.stop()

	gate := shards.NewGate(nil)
	gate.Open(t.Context(), shard.All().Minus(namespaceBucket(b.namespace)), false)
	b.shards = gate
	b.start()
	b.bound(b.pod("second", inNamespace(b.namespace)))
	edit := func(status string) {
		t.Helper()
		is := b.kn(b.namespace)
		if err := b.client.Status().Patch(t.Context(), is, client.RawPatch(types.MergePatchType, []byte(status))); err != nil {
			t.Fatal(err)
		}
		b.followed(is)
	}
	edit(fmt.Sprintf(`{"status":{"networkID":%q,"subnets":[{"id":%q,"ipVersion":4,"cidr":"10.99.0.0/24"}]}}`, foreign, foreignSubnet))
	third := b.pod("third", inNamespace(b.namespace))
	b.never("the pod has a port by a status that was not compared", func() bool { return b.portOf(third) != nil })
	right, err := json.Marshal(map[string]any{"status": map[string]any{
		"networkID": kn.Status.NetworkID, "subnets": kn.Status.Subnets, "nodeRoutes": []v1.Route{{Destination: "10.200.0.0/24", Gateway: "192.0.2.9"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	reads := b.cloud.Calls(memory.GetNetwork)
	edit(string(right)) // as its process does
	if port := b.bound(third); port.Spec.NetworkID != kn.Status.NetworkID {
		t.Errorf("the pod has a port in network %s, want %s", port.Spec.NetworkID, kn.Status.NetworkID)
	}
	b.bound(b.pod("fourth", inNamespace(b.namespace)))
	if n := b.cloud.Calls(memory.GetNetwork) - reads; n == 0 || n > 3 {
		t.Errorf("the network was read %d times after one change, want once", n)
	}
	if n := b.inNetwork(foreign); n > 0 {
		t.Errorf("the foreign network has %d ports", n)
	}
}
