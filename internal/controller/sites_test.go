// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

const (
	otherGroup  = "5f1c5aac-0000-4000-8000-00000000000b"
	machine     = "5f1c5aac-0000-4000-8000-0000000000a1"
	machineNet  = "5f1c5aac-0000-4000-8000-000000000002"
	machineAddr = "192.0.2.10"
)

func labelled(pairs ...string) *metav1.LabelSelector {
	s := &metav1.LabelSelector{MatchLabels: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		s.MatchLabels[pairs[i]] = pairs[i+1]
	}
	return s
}

// label sets a label of an object, or removes it if value is empty.
func (b *bed) label(obj client.Object, key, value string) {
	b.t.Helper()
	text := "null"
	if value != "" {
		text = `"` + value + `"`
	}
	patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%s}}}`, key, text))
	if err := b.client.Patch(b.t.Context(), obj, patch); err != nil {
		b.t.Fatal(err)
	}
}

// namespace creates a namespace, or returns that of an earlier test: this API server does not
// finish the deletion of namespaces. Its pods are deleted with the test.
func (b *bed) namespace(name string) *corev1.Namespace {
	b.t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := b.client.Create(b.t.Context(), ns); err != nil && !apierrors.IsAlreadyExists(err) {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() {
		ctx := context.Background()
		_ = b.client.DeleteAllOf(ctx, &corev1.Pod{}, client.InNamespace(name), client.GracePeriodSeconds(0))
		_ = b.client.Patch(ctx, ns, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"team":null}}}`)))
	})
	return ns
}

func inNamespace(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Namespace = name }
}

func nodeNamed(name string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

// nodeStatus writes a node's status as kubelet does.
func (b *bed) nodeStatus(name, ip string, ready bool) {
	b.t.Helper()
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	text := fmt.Sprintf(`{"status":{"addresses":[{"type":"InternalIP","address":%q}],"conditions":[{"type":"Ready","status":%q}]}}`, ip, status)
	if err := b.client.Status().Patch(b.t.Context(), nodeNamed(name), client.RawPatch(types.MergePatchType, []byte(text))); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) poolOf(port *v1.KuryrPort) *v1.KuryrPortPool {
	b.t.Helper()
	var found *v1.KuryrPortPool
	b.eventually("the pool of port "+port.Name+" has an object", func() bool {
		for _, p := range b.pools() {
			if p.Name == port.Spec.Pool {
				found = &p
			}
		}
		return found != nil
	})
	return found
}

// TestLevelsOfSomeNodes: levels follow the labels of the node.
func TestLevelsOfSomeNodes(t *testing.T) {
	b := idleBed(t)
	b.current.Pools.Overrides = []config.PoolOverride{{NodeSelector: labelled("size", "large"), Min: new(int32(3)), Batch: new(int32(7))}}
	b.set(func(*settings.Settings) {})
	b.start()
	b.bound(b.pod("web"))
	b.settled(1)
	b.label(nodeNamed(node), "size", "large")
	b.settled(4)
	if s := b.pools()[0].Spec; s.Min != 3 || s.Batch != 7 {
		t.Errorf("levels of the pool are min %d, batch %d; want 3, 7", s.Min, s.Batch)
	}
	b.label(nodeNamed(node), "size", "")
	b.settled(1)
	b.set(func(s *settings.Settings) {
		s.Pools.Overrides = []config.PoolOverride{{NodeSelector: labelled(), Min: new(int32(1))}}
	})
	b.settled(2)
}

// TestNamespacesWithPools: the label of a namespace decides which pool a new pod's port comes from.
// A pod that has a port keeps it.
func TestNamespacesWithPools(t *testing.T) {
	b := idleBed(t)
	b.current.Pools.Overrides = []config.PoolOverride{{NamespaceSelector: labelled("team", "a"), Min: new(int32(1))}}
	b.set(func(*settings.Settings) {})
	ns := b.namespace("team-a")
	b.label(ns, "team", "a")
	b.start()
	common := b.poolOf(b.bound(b.pod("web")))
	port := b.bound(b.pod("own", inNamespace("team-a")))
	own := b.poolOf(port)
	if common.Spec.Key.Namespace != "" || own.Spec.Key.Namespace != "team-a" || own.Spec.Min != 1 || common.Spec.Min != 0 {
		t.Errorf("pools are %+v and %+v", common.Spec, own.Spec)
	}
	b.settled(3)
	b.label(ns, "team", "")
	b.settled(2) // the free port of the namespace is deleted
	second := b.bound(b.pod("second", inNamespace("team-a")))
	if second.Spec.Pool != common.Name {
		t.Errorf("the pod's port is of pool %s, want %s", second.Spec.Pool, common.Name)
	}
	b.label(ns, "team", "a")
	third := b.bound(b.pod("third", inNamespace("team-a")))
	if third.Spec.Pool != own.Name {
		t.Errorf("the pod's port is of pool %s, want %s", third.Spec.Pool, own.Name)
	}
	b.settled(5)
}

func groupsOf(t testing.TB, b *bed, port string) []string {
	t.Helper()
	got, err := b.cloud.Backend("cluster").Port(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	return got.SecurityGroupIDs
}

// TestGroupsOfSomePods: a free port gets the pod's groups, again when the pod's labels change. It
// keeps them when the pod gives it back: a next pod with the same groups costs the SDN nothing.
// Without the rule it has the pool's groups.
func TestGroupsOfSomePods(t *testing.T) {
	b := idleBed(t)
	b.current.Pools.Min = 1
	b.current.Pods.SecurityGroups = []config.GroupRule{
		{PodSelector: labelled("role", "web"), SecurityGroupIDs: []string{otherGroup}},
		{PodSelector: labelled("role", "none"), SecurityGroupIDs: []string{}},
	}
	b.set(func(*settings.Settings) {})
	b.start()
	b.bound(b.pod("first"))
	b.settled(2)
	pod := b.pod("web", func(p *corev1.Pod) { p.Labels = map[string]string{"role": "web"} })
	port := b.bound(pod)
	has := func(want ...string) func() bool {
		return func() bool {
			p := b.portOf(pod)
			return p != nil && slices.Equal(p.Status.AppliedSecurityGroupIDs, want) && slices.Equal(p.Spec.SecurityGroupIDs, want) &&
				p.Status.Phase == v1.PortBound && slices.Equal(groupsOf(t, b, p.Name), want)
		}
	}
	b.eventually("the port has the pod's group", has(otherGroup))
	if got := b.portOf(pod).Generation; got != 2 {
		t.Errorf("the port's spec was written %d times, want 2: as it was made, and with the pod and its groups at once", got)
	}
	b.label(pod, "role", "none")
	b.eventually("the port has no group", has())
	b.label(pod, "role", "other")
	b.eventually("the port has the pool's group", has(group))
	b.label(pod, "role", "web")
	b.eventually("the port has the pod's group again", has(otherGroup))
	b.set(func(s *settings.Settings) {
		s.Pods.SecurityGroups = slices.Clone(s.Pods.SecurityGroups) // the controller reads the former slice
		s.Pods.SecurityGroups[0].SecurityGroupIDs = []string{group, otherGroup}
	})
	b.eventually("the port has both", has(group, otherGroup))
	b.set(func(s *settings.Settings) { s.Pools.TTL = metav1.Duration{Duration: time.Hour} })
	b.delete(pod)
	free := func(want ...string) func() bool {
		return func() bool {
			return slices.Equal(groupsOf(t, b, port.Name), want) && slices.ContainsFunc(b.ports(), func(p v1.KuryrPort) bool {
				return p.Name == port.Name && p.Spec.PodRef == nil && p.Status.Phase == v1.PortAvailable && slices.Equal(p.Spec.SecurityGroupIDs, want)
			})
		}
	}
	b.eventually("the port is free and has the groups still", free(group, otherGroup))
	b.knows("it is", func(p *v1.KuryrPort) bool { // else the next pod gets a new port
		return p.Name == port.Name && p.Spec.PodRef == nil && p.Status.Phase == v1.PortAvailable && p.Grouped()
	})
	calls := b.cloud.Calls(memory.UpdatePort)
	next := b.pod("next", func(p *corev1.Pod) { p.Labels = map[string]string{"role": "web"} })
	if got := b.bound(next).Name; got != port.Name {
		t.Errorf("the next pod with these groups has port %s, want %s, which has them", got, port.Name)
	}
	if n := b.cloud.Calls(memory.UpdatePort) - calls; n != 0 {
		t.Errorf("%d changes of ports for it, want none", n)
	}
	b.delete(next)
	b.eventually("the port is free again", free(group, otherGroup))
	b.set(func(s *settings.Settings) { s.Pods.SecurityGroups = s.Pods.SecurityGroups[1:] })
	b.eventually("the port has the pool's group", free(group))
}

// TestColdPodWithGroups: the first pod of a pool may have other groups, too.
func TestColdPodWithGroups(t *testing.T) {
	b := idleBed(t)
	b.current.Pods.SecurityGroups = []config.GroupRule{{NamespaceSelector: labelled("kubernetes.io/metadata.name", "default"), SecurityGroupIDs: []string{otherGroup}}}
	b.set(func(*settings.Settings) {})
	b.start()
	pod := b.pod("web")
	port := b.bound(pod)
	b.eventually("its port has the group", func() bool { return slices.Equal(groupsOf(t, b, port.Name), []string{otherGroup}) })
	b.settled(1)
	b.delete(pod)
	b.settled(0)
}

// TestGroupsThatAreRefused: the refusal is reported on the pod, and a corrected rule gives it its
// network. The port of a pod that is deleted before is not lost.
func TestGroupsThatAreRefused(t *testing.T) {
	b := idleBed(t)
	b.cloud.AddGroups(group, otherGroup)
	b.current.Pools.Min, b.current.Pools.TTL = 1, metav1.Duration{Duration: time.Hour}
	rules := func(id string) []config.GroupRule {
		return []config.GroupRule{{PodSelector: labelled("role", "web"), SecurityGroupIDs: []string{id}}}
	}
	const missing = "5f1c5aac-0000-4000-8000-0000000000dd"
	b.current.Pods.SecurityGroups = rules(missing)
	b.set(func(*settings.Settings) {})
	b.start()
	b.bound(b.pod("first"))
	b.settled(2)
	web := func(p *corev1.Pod) { p.Labels = map[string]string{"role": "web"} }
	failed := func(pod *corev1.Pod) *v1.KuryrPort {
		var port *v1.KuryrPort
		b.eventually("the port of "+pod.Name+" is refused", func() bool {
			port = b.portOf(pod)
			return port != nil && port.Status.Phase == v1.PortFailed
		})
		return port
	}
	gone := b.pod("gone", web)
	port := failed(gone)
	b.mentions("the Event", b.eventOn("gone", "Rejected"), missing)
	b.settled(3)
	b.delete(gone)
	b.eventually("its port is as good as any", func() bool {
		return slices.ContainsFunc(b.ports(), func(p v1.KuryrPort) bool { return p.Name == port.Name && p.Status.Phase == v1.PortAvailable })
	})
	b.settled(3)
	pod := b.pod("web", web)
	failed(pod)
	b.set(func(s *settings.Settings) { s.Pods.SecurityGroups = rules(otherGroup) })
	b.bound(pod)
	if got := groupsOf(t, b, b.portOf(pod).Name); !slices.Equal(got, []string{otherGroup}) {
		t.Errorf("the port has groups %q, want the corrected rule's", got)
	}
}
