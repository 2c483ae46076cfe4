// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

func public(s *v1.KuryrLoadBalancerSpec) { s.PublicIP = &v1.PublicIPSpec{NetworkID: publicNetwork} }

// onAfter sets a hook that runs after a call to the cloud has taken effect.
func (b *bed) onAfter(h memory.Hook) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.after = h
}

func (b *bed) onBefore(h memory.Hook) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.before = h
}

// unmark removes the finalizers of a KuryrLoadBalancer, as people in a hurry do.
func (b *bed) unmark(name string) {
	b.t.Helper()
	if err := b.client.Patch(b.t.Context(), b.klb(name), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`))); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) empty(name string) {
	b.t.Helper()
	if err := b.client.Status().Patch(b.t.Context(), b.klb(name), client.RawPatch(types.MergePatchType, []byte(`{"status":null}`))); err != nil {
		b.t.Fatal(err)
	}
}

// publicOnes returns the floating IPs of the cloud, sorted: the address, whether it has a mark, and
// its port.
func (b *bed) publicOnes() (all []string) {
	places := map[string]string{"": "nowhere"}
	for _, item := range b.cloud.LoadBalancers() {
		places[item.LoadBalancer.VIPPortID] = "at " + item.LoadBalancer.VIP.IP
	}
	for _, f := range b.cloud.FloatingIPs() {
		place, ok := places[f.FloatingIP.PortID]
		if !ok {
			place = "elsewhere"
		}
		all = append(all, strings.TrimSpace(fmt.Sprint(f.FloatingIP.Address, " ", f.Cluster, " ", place)))
	}
	slices.Sort(all)
	return all
}

// counted returns the value of a counter of this process.
func counted(t *testing.T, name string) (n float64) {
	t.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				n += m.GetCounter().GetValue()
			}
		}
	}
	return n
}

const (
	serviceSubnet  = "5f1c5aac-0000-4000-8000-000000000050"
	publicSubnet   = "5f1c5aac-0000-4000-8000-000000000060"
	publicNetwork  = "5f1c5aac-0000-4000-8000-0000000000f0"
	service6Subnet = "5f1c5aac-0000-4000-8000-000000000056"
)

// balancerBed is an idle bed whose controller applies load balancers. It has no planner: the tests
// write the KuryrLoadBalancers.
func balancerBed(t testing.TB) *bed {
	t.Helper()
	b := idleBed(t)
	b.balancing = true
	for id, p := range map[string]string{serviceSubnet: "10.96.0.0/12", service6Subnet: "fd00:96::/112"} {
		b.cloud.AddSubnet(memory.Subnet{ID: id, NetworkID: network, Prefix: netip.MustParsePrefix(p), MTU: 1442})
	}
	b.cloud.AddSubnet(memory.Subnet{ID: publicSubnet, NetworkID: publicNetwork, Prefix: netip.MustParsePrefix("203.0.113.0/24"), External: true})
	t.Cleanup(func() {
		if b.stop != nil {
			b.stop()
		}
		ctx := context.Background()
		var list v1.KuryrLoadBalancerList
		_ = b.client.List(ctx, &list)
		for i := range list.Items {
			klb := &list.Items[i]
			_ = b.client.Patch(ctx, klb, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
			_ = b.client.Delete(ctx, klb)
		}
	})
	return b
}

// balancer creates a KuryrLoadBalancer with two ports and two endpoints each.
func (b *bed) balancer(name string, change ...func(*v1.KuryrLoadBalancerSpec)) *v1.KuryrLoadBalancer {
	b.t.Helper()
	klb := newBalancer(name)
	for _, f := range change {
		f(&klb.Spec)
	}
	b.create(klb)
	return klb
}

// manyBalancers creates web-0 to web-(n-1), at different addresses.
func (b *bed) manyBalancers(n int, change ...func(*v1.KuryrLoadBalancerSpec)) {
	b.t.Helper()
	for i := range n {
		klb := newBalancer(fmt.Sprint("web-", i))
		for _, f := range change {
			f(&klb.Spec)
		}
		klb.Spec.VIPs[0].IP = fmt.Sprintf("10.96.%d.%d", 16+i/250, 1+i%250)
		b.create(klb)
	}
}

func newBalancer(name string) *v1.KuryrLoadBalancer {
	yes := true
	return &v1.KuryrLoadBalancer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "Service", Name: name, UID: "s", Controller: &yes},
		}},
		Spec: v1.KuryrLoadBalancerSpec{
			VIPs:      []v1.VIPAddress{{IP: "10.96.0.10", SubnetID: serviceSubnet}},
			Listeners: []v1.ListenerSpec{balancerPort(80, 1, 2), balancerPort(443, 1, 2)},
		},
	}
}

func balancerPort(port int32, members ...int) v1.ListenerSpec {
	l := v1.ListenerSpec{Name: fmt.Sprint("p", port), Protocol: "TCP", Port: port}
	for _, i := range members {
		l.Members = append(l.Members, v1.MemberSpec{Name: fmt.Sprint("default/pod-", i), IP: fmt.Sprintf("10.1.0.%d", i), Port: 8080, SubnetID: subnet})
	}
	return l
}

func (b *bed) klb(name string) *v1.KuryrLoadBalancer {
	b.t.Helper()
	var klb v1.KuryrLoadBalancer
	if err := b.client.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &klb); err != nil {
		b.t.Fatal(err)
	}
	return &klb
}

// respec changes the spec of a KuryrLoadBalancer, as a planner does.
func (b *bed) respec(name string, change func(*v1.KuryrLoadBalancerSpec)) {
	b.t.Helper()
	old := b.klb(name)
	klb := old.DeepCopy()
	change(&klb.Spec)
	if err := b.client.Patch(b.t.Context(), klb, client.MergeFrom(old)); err != nil {
		b.t.Fatal(err)
	}
}

// realised waits until the status says that the cloud matches a KuryrLoadBalancer.
func (b *bed) realised(name string) *v1.KuryrLoadBalancer {
	b.t.Helper()
	var klb *v1.KuryrLoadBalancer
	b.eventually("KuryrLoadBalancer "+name+" is ready", func() bool {
		klb = b.klb(name)
		ready := meta.FindStatusCondition(klb.Status.Conditions, v1.ConditionReady)
		return ready != nil && ready.Status == metav1.ConditionTrue && ready.ObservedGeneration == klb.Generation &&
			meta.IsStatusConditionFalse(klb.Status.Conditions, v1.ConditionProgressing)
	})
	return klb
}

// tree returns the load balancer of one Service in the cloud; nil unless there is exactly one.
func (b *bed) tree(name string) *sdn.LoadBalancer {
	var found []sdn.LoadBalancer
	for _, item := range b.cloud.LoadBalancers() {
		if item.LoadBalancer.Owner.Name == name {
			found = append(found, item.LoadBalancer)
		}
	}
	if len(found) != 1 {
		return nil
	}
	return &found[0]
}

// serves returns the ports of a Service in the cloud, with their endpoints.
func (b *bed) serves(name string) []string {
	var out []string
	if lb := b.tree(name); lb != nil {
		for _, l := range lb.Listeners {
			if l.Pool == nil {
				continue
			}
			for _, m := range l.Pool.Members {
				out = append(out, fmt.Sprintf("%s:%d>%s", l.Protocol, l.Port, m.IP))
			}
		}
	}
	slices.Sort(out)
	return out
}

var served = []string{"TCP:443>10.1.0.1", "TCP:443>10.1.0.2", "TCP:80>10.1.0.1", "TCP:80>10.1.0.2"}

// writes counts the calls that change load balancers and floating IPs.
func (b *bed) writes() map[string]int {
	out := map[string]int{}
	for _, call := range []string{
		memory.CreateLoadBalancer, memory.DeleteLoadBalancer, memory.FailOver, memory.CreateListener, memory.UpdateListener,
		memory.DeleteListener, memory.CreatePool, memory.UpdatePool, memory.DeletePool, memory.ChangeMembers,
		memory.CreateFloatingIP, memory.Associate, memory.DeleteFloatingIP,
	} {
		if n := b.cloud.Calls(call); n > 0 {
			out[call] = n
		}
	}
	return out
}

func (b *bed) removed(name string) {
	b.t.Helper()
	b.eventually("KuryrLoadBalancer "+name+" is gone", func() bool {
		var klb v1.KuryrLoadBalancer
		return client.IgnoreNotFound(b.client.Get(b.t.Context(), client.ObjectKey{Namespace: "default", Name: name}, &klb)) == nil && klb.Name == ""
	})
}

func (b *bed) publicOf(lb *sdn.LoadBalancer) string {
	for _, f := range b.cloud.FloatingIPs() {
		if f.FloatingIP.PortID == lb.VIPPortID {
			return f.FloatingIP.Address
		}
	}
	return ""
}

// eventSaying waits for an Event with this reason on an object, whose note has all of words.
func (b *bed) eventSaying(name, reason string, words ...string) {
	b.t.Helper()
	b.eventually(fmt.Sprintf("there is an Event %s on %s that says %q", reason, name, words), func() bool {
		var list eventsv1.EventList
		if err := b.client.List(b.t.Context(), &list); err != nil {
			b.t.Fatal(err)
		}
		return slices.ContainsFunc(list.Items, func(e eventsv1.Event) bool {
			return e.Regarding.Name == name && e.Reason == reason && hasWords(e.Note, words...)
		})
	})
}
