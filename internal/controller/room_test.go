// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// poolOn returns the pool of a node; nil if the node has none.
func (b *bed) poolOn(node string) *v1.KuryrPortPool {
	for _, p := range b.pools() {
		if p.Spec.Key.NodeName == node {
			return &p
		}
	}
	return nil
}

// says waits until a condition of a node's pool has this value, and returns its message.
func (b *bed) says(node, kind string, is bool) (message string) {
	b.t.Helper()
	want := metav1.ConditionFalse
	if is {
		want = metav1.ConditionTrue
	}
	b.eventually(fmt.Sprintf("the pool of %s says %s %s", node, kind, want), func() bool {
		p := b.poolOn(node)
		if p == nil {
			return false
		}
		c := meta.FindStatusCondition(p.Status.Conditions, kind)
		if c == nil || c.Status != want {
			return false
		}
		message = c.Message
		return true
	})
	return message
}

// TestQuotaIsSaidWithNumbers: the pool and the waiting pod report the quota with numbers.
func TestQuotaIsSaidWithNumbers(t *testing.T) {
	b := idleBed(t)
	b.cloud.SetQuota(2)
	b.start()
	b.bound(b.pod("a"))
	b.bound(b.pod("b"))
	last := b.pod("c")
	b.mentions("Event", b.eventOn("c", "OverQuota"), "2 of 2 ports", "Raise")
	b.mentions("condition", b.says(node, v1.ConditionOverQuota, true), "2 of 2 ports")
	b.cloud.SetQuota(3)
	b.bound(last)
	b.says(node, v1.ConditionOverQuota, false)
}

// TestSubnetExhausted: an exhausted subnet is reported differently from a quota, until a port is
// deleted. The pool lacks nothing, and gets no Event.
func TestSubnetExhausted(t *testing.T) {
	b := idleBed(t)
	b.cloud.AddSubnet(memory.Subnet{
		ID: subnet, NetworkID: network, Prefix: netip.MustParsePrefix("10.1.0.0/29"), Gateway: netip.MustParseAddr("10.1.0.1"), MTU: 1442,
	})
	b.start()
	var pods []*corev1.Pod
	for i := range 5 {
		pods = append(pods, b.pod(fmt.Sprint("web-", i)))
	}
	for _, pod := range pods {
		b.bound(pod)
	}
	last := b.pod("last")
	b.mentions("Event", b.eventOn("last", "SubnetExhausted"), "5 of 5 addresses of subnet "+subnet)
	b.mentions("condition", b.says(node, v1.ConditionSubnetExhausted, true), "5 of 5 addresses")
	b.says(node, v1.ConditionOverQuota, false)
	b.delete(pods[0])
	b.bound(last)
	b.says(node, v1.ConditionSubnetExhausted, false)
	var told eventsv1.EventList
	if err := b.client.List(t.Context(), &told); err != nil {
		t.Fatal(err)
	}
	for _, e := range told.Items {
		if e.Regarding.Kind == "KuryrPortPool" {
			t.Errorf("a pool that lacks nothing was told: %s", e.Note)
		}
	}
}

// TestIdlePoolGivesPortsUp: an idle pool gives up ports below its minimum for pods that wait
// elsewhere. It gets them back when there is room.
func TestIdlePoolGivesPortsUp(t *testing.T) {
	b := idleBed(t)
	b.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}})
	b.cloud.SetQuota(6)
	b.set(func(s *settings.Settings) { s.Pools.Min, s.Pools.Batch, s.Pools.TTL.Duration = 4, 4, time.Hour })
	b.start()
	b.bound(b.pod("idle"))
	b.eventually("the first pool has what there is", func() bool {
		p := b.poolOn(node)
		return p != nil && p.Status.Available >= 3
	})
	b.set(func(s *settings.Settings) { s.Pools.Min = 3 })
	var pods []*corev1.Pod
	for i := range 4 {
		pods = append(pods, b.pod(fmt.Sprint("busy-", i), func(p *corev1.Pod) { p.Spec.NodeName = "node-2" }))
	}
	for _, pod := range pods {
		b.bound(pod)
	}
	if n := b.cloud.Ports(); n > 6 {
		t.Errorf("%d ports, more than the quota", n)
	}
	b.cloud.SetQuota(100)
	b.set(func(*settings.Settings) {}) // otherwise it would check for room after a minute
	b.eventually("both pools have what they keep", func() bool {
		one, two := b.poolOn(node), b.poolOn("node-2")
		return one.Status.Available == 3 && two.Status.Available == 3
	})
	b.says(node, v1.ConditionOverQuota, false)
}

// unseen is a backend whose credential may not see how many addresses are used, like that of a
// project member.
type unseen struct{ sdn.Backend }

func (u unseen) Room(ctx context.Context, project string, subnets []string) (sdn.Room, error) {
	room, err := u.Backend.Room(ctx, project, subnets)
	room.Subnets = nil
	return room, err
}

// TestIdlePoolGivesUpAddressesThatAreNotSeen: the same without that permission. The pod and the
// pool say what is exhausted.
func TestIdlePoolGivesUpAddressesThatAreNotSeen(t *testing.T) {
	b := idleBed(t)
	b.cloud.AddSubnet(memory.Subnet{
		ID: subnet, NetworkID: network, Prefix: netip.MustParsePrefix("10.1.0.0/29"), Gateway: netip.MustParseAddr("10.1.0.1"), MTU: 1442,
	})
	b.cloud.SetQuota(100)
	b.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-2"}})
	b.set(func(s *settings.Settings) { s.Pools.Min, s.Pools.Batch, s.Pools.TTL.Duration = 4, 4, time.Hour })
	b.backend = unseen{b.cloud.Backend("cluster")}
	b.start()
	b.bound(b.pod("idle"))
	b.eventually("the first pool has what there is", func() bool {
		p := b.poolOn(node)
		return p != nil && p.Status.Available == 4
	})
	var pods []*corev1.Pod
	for i := range 4 {
		pods = append(pods, b.pod(fmt.Sprint("busy-", i), func(p *corev1.Pod) { p.Spec.NodeName = "node-2" }))
	}
	for _, pod := range pods {
		b.bound(pod)
	}
	b.pod("last", func(p *corev1.Pod) { p.Spec.NodeName = "node-2" })
	b.mentions("Event", b.eventOn("last", "SubnetExhausted"), "subnet "+subnet+" has no address left")
	b.says("node-2", v1.ConditionSubnetExhausted, true)
	b.says("node-2", v1.ConditionOverQuota, false)
}

// TestPoolThatIsLeftSaysSo: after the deletion of its last port a pool counts none, though its
// object stays for a while.
func TestPoolThatIsLeftSaysSo(t *testing.T) {
	b := idleBed(t)
	b.unhurried = true // otherwise its object is deleted too soon
	b.start()
	pod := b.pod("web")
	port := b.bound(pod)
	b.attach(port, true)
	b.eventually("the pool counts the port", func() bool { return b.poolOn(node).Status.Bound == 1 })
	b.delete(pod)
	b.eventually("the pool sees it coming back", func() bool { return b.poolOn(node).Status.Bound == 0 })
	b.attach(port, false)
	b.settled(0)
	b.eventually("the pool counts no port", func() bool {
		s := b.poolOn(node).Status
		return s.Total == 0 && s.Recycling == 0 && meta.IsStatusConditionFalse(s.Conditions, v1.ConditionProgressing)
	})
}

// TestFill: a pool is filled once when its annotation requests it. An invalid annotation is
// reported.
func TestFill(t *testing.T) {
	b := idleBed(t)
	b.set(func(s *settings.Settings) { s.Pools.Batch, s.Pools.TTL.Duration = 3, time.Hour })
	b.start()
	b.bound(b.pod("web"))
	b.eventually("there is a pool", func() bool { return b.poolOn(node) != nil })
	b.annotatePool("many")
	b.mentions("Event", b.eventOn(b.poolOn(node).Name, "FillRefused"), `"many"`, "number")
	b.annotatePool("7")
	b.eventually("seven ports are free and the wish is gone", func() bool {
		p := b.poolOn(node)
		_, asked := p.Annotations[v1.FillAnnotation]
		return p.Status.Available == 7 && !asked
	})
	b.annotatePool("0")
	b.eventually("a wish for nothing is gone", func() bool { return len(b.poolOn(node).Annotations) == 0 })
	b.settled(8)
}

func (b *bed) annotatePool(value string) {
	b.t.Helper()
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1.FillAnnotation, value))
	if err := b.client.Patch(b.t.Context(), b.poolOn(node), patch); err != nil {
		b.t.Fatal(err)
	}
}

// TestPortOfAStoppedProcessIsAdopted: its pool adopts the port. A port whose pool is gone, or that
// is plugged, is deleted.
func TestPortOfAStoppedProcessIsAdopted(t *testing.T) {
	b := newBed(t)
	b.set(func(s *settings.Settings) { s.Pools.Min, s.Pools.TTL.Duration = 1, time.Hour })
	b.bound(b.pod("web"))
	b.settled(2)
	b.stop()
	p := b.poolOn(node)
	backend := b.cloud.Backend("cluster")
	request := sdn.PortRequest{SubnetIDs: []string{subnet}, SecurityGroupIDs: []string{group}, Host: node}
	lost := b.port(backend, p.Name, request)
	plugged := b.port(backend, p.Name, request)
	b.cloud.SetActive(plugged, true)
	nobodys := b.port(backend, "gone", request)
	b.start()
	b.eventually("the port that was lost has an object", func() bool {
		err := b.client.Get(t.Context(), client.ObjectKey{Name: lost}, &v1.KuryrPort{})
		return err == nil
	})
	b.eventually("what is of no use is deleted", func() bool { return !b.cloud.HasPort(nobodys) && !b.cloud.HasPort(plugged) })
}

func (b *bed) port(backend sdn.Ports, pool string, r sdn.PortRequest) (id string) {
	b.t.Helper()
	made, err := backend.CreatePorts(b.t.Context(), sdn.Owner{Kind: "kuryrportpool", Name: pool}, r, 1)
	if err != nil {
		b.t.Fatal(err)
	}
	return made[0].ID
}
