// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// foreignPort makes a port of somebody else in the network of a namespace.
func (b *netBed) foreignPort(kn *v1.KuryrNetwork) sdn.Port {
	b.t.Helper()
	all, err := b.cloud.Backend("somebody").CreatePorts(b.t.Context(), sdn.Owner{Kind: sdn.KindPool, Name: "machine"},
		sdn.PortRequest{NetworkID: kn.Status.NetworkID, SubnetIDs: []string{kn.Status.Subnets[0].ID}}, 1)
	if err != nil {
		b.t.Fatal(err)
	}
	return all[0]
}

// routed reports whether the only network of the cluster has its router.
func (b *netBed) routed() bool {
	all := b.owned()
	return len(all) == 1 && len(all[0].Subnets) == 1 && slices.Equal(all[0].Subnets[0].RouterIDs, []string{netRouter})
}

func (b *netBed) says(namespace, condition, reason, word string) bool {
	kn := b.kn(namespace)
	if kn == nil {
		return false
	}
	c := meta.FindStatusCondition(kn.Status.Conditions, condition)
	return c != nil && c.Reason == reason && strings.Contains(c.Message, word)
}

// A port of somebody else keeps the network of a deleted namespace, with its router, and the
// deletion names the port. When it is gone, the rest goes.
func TestAForeignPortInANetworkThatIsDeleted(t *testing.T) {
	b := newNetBed(t, "flat")
	b.start()
	b.makeNamespace(b.namespace, nil)
	pod := b.waiting(b.namespace, "first")
	machine := b.foreignPort(b.ready(b.namespace))
	b.delete(pod)
	b.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}})
	b.deleteNetworkOf(b.namespace)
	b.eventually("the deletion names the port", func() bool { return b.says(b.namespace, v1.ConditionReady, v1.ReasonNetworkInUse, machine.ID) })
	b.never("the machine loses its router", func() bool { return !b.routed() })
	if n := b.cloud.Calls(memory.DeleteNetwork); n != 0 {
		t.Errorf("%d requests to delete a network in use, want none", n)
	}
	b.cloud.RemovePort(machine.ID)
	b.eventually("nothing is left", func() bool { return b.kn(b.namespace) == nil && len(b.owned()) == 0 })
}

// A network that is left over stays with its router while somebody has a port in it.
func TestAForeignPortInANetworkThatIsLeftOver(t *testing.T) {
	b := newNetBed(t, "flat")
	backend, owner := b.cloud.Backend("cluster"), sdn.Owner{Kind: sdn.KindNetwork, Namespace: "gone", Name: "gone"}
	left, err := backend.CreateNetwork(t.Context(), owner, sdn.NetworkSpec{Name: "u/gone"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := backend.CreateSubnet(t.Context(), owner, sdn.SubnetSpec{NetworkID: left.ID, Name: "u/gone", IPVersion: 4, Prefix: netip.MustParsePrefix("10.77.0.0/24")})
	if err == nil {
		err = backend.AddRouterInterface(t.Context(), netRouter, s.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	machine := b.foreignPort(&v1.KuryrNetwork{Status: v1.KuryrNetworkStatus{NetworkID: left.ID, Subnets: []v1.NetworkSubnetStatus{{ID: s.ID}}}})
	b.start()
	b.eventuallyIn(15*time.Second, "the collector sees the port", func() bool { return b.cloud.Calls(memory.NetworkInUse) > 0 })
	b.never("the machine loses its router", func() bool { return !b.routed() })
	b.cloud.RemovePort(machine.ID)
	b.eventuallyIn(15*time.Second, "the network "+left.ID+" is deleted", func() bool { return len(b.owned()) == 0 })
}

// The network of a living namespace is not replaced while somebody else has a port in it: it serves
// pods until then.
func TestAForeignPortInANetworkThatIsToChange(t *testing.T) {
	b := newNetBed(t, "flat")
	b.start()
	b.makeNamespace(b.namespace, nil)
	pod := b.waiting(b.namespace, "first")
	kn := b.ready(b.namespace)
	machine := b.foreignPort(kn)
	b.delete(pod)
	b.set(func(s *settings.Settings) { s.Networks.Mode = "namespace" })
	b.eventually("the change names the port", func() bool { return b.says(b.namespace, v1.ConditionPlanned, v1.ReasonNetworkInUse, machine.ID) })
	port := b.bound(b.pod("served", func(p *corev1.Pod) { p.Namespace = b.namespace }))
	if port.Spec.NetworkID != kn.Status.NetworkID {
		t.Errorf("a pod has a port in network %s, want the old one, %s", port.Spec.NetworkID, kn.Status.NetworkID)
	}
	b.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "served"}})
	b.eventually("the change waits for the port again", func() bool { return b.says(b.namespace, v1.ConditionPlanned, v1.ReasonNetworkInUse, machine.ID) })
	b.cloud.RemovePort(machine.ID)
	b.eventuallyIn(15*time.Second, "the old network is deleted", func() bool { return b.kn(b.namespace) == nil && len(b.owned()) == 0 })
}

// A Service of another namespace, whose EndpointSlice somebody has written by hand, may have members in
// the network of a deleted namespace, and its provider a port for them. The deletion names the load
// balancer, beside the port: its author can remove the members.
func TestMembersOfAnotherNamespaceInANetworkThatIsDeleted(t *testing.T) {
	b := newNetBed(t, "flat")
	b.start()
	b.makeNamespace(b.namespace, nil)
	pod := b.waiting(b.namespace, "first")
	kn := b.ready(b.namespace)
	port := b.foreignPort(kn)
	klb := newBalancer(b.namespace)
	klb.Spec.Listeners[0].Members = []v1.MemberSpec{{Name: "default/web", IP: "10.0.0.9", Port: 80, SubnetID: kn.Status.Subnets[0].ID}}
	other := newBalancer(b.namespace + "-other")
	other.Spec.VIPs[0].IP = "10.96.9.9"
	b.create(klb)
	b.create(other)
	t.Cleanup(func() {
		_ = b.client.Delete(context.Background(), klb)
		_ = b.client.Delete(context.Background(), other)
	})
	b.delete(pod)
	b.deleteNetworkOf(b.namespace)
	b.eventually("the deletion names the load balancer", func() bool {
		return b.says(b.namespace, v1.ConditionReady, v1.ReasonNetworkInUse, "default/"+klb.Name) &&
			b.says(b.namespace, v1.ConditionReady, v1.ReasonNetworkInUse, port.ID) &&
			!b.says(b.namespace, v1.ConditionReady, v1.ReasonNetworkInUse, other.Name)
	})
	b.cloud.RemovePort(port.ID)
	b.eventually("nothing is left", func() bool { return b.kn(b.namespace) == nil && len(b.owned()) == 0 })
}
