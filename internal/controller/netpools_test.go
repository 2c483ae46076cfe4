// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/apitest"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// The networks of namespaces red and blue.
const (
	redNet     = "5f1c5aac-0000-4000-8000-0000000a0000"
	redSubnet  = "5f1c5aac-0000-4000-8000-0000000a0001"
	redMore    = "5f1c5aac-0000-4000-8000-0000000a0002"
	blueNet    = "5f1c5aac-0000-4000-8000-0000000b0000"
	blueSubnet = "5f1c5aac-0000-4000-8000-0000000b0001"
)

// apartBed is idleBed with settings by which namespaces with the label "team" have networks of their
// own, those of team blue in a project of their own.
func apartBed(t testing.TB) *bed {
	t.Helper()
	b := idleBed(t)
	b.withNetworks()
	return b
}

func (b *bed) withNetworks() {
	b.cloud.AddSubnet(memory.Subnet{ID: redSubnet, NetworkID: redNet, Prefix: netip.MustParsePrefix("10.21.0.0/16"), Gateway: netip.MustParseAddr("10.21.0.1"), MTU: 1442})
	b.cloud.AddSubnet(memory.Subnet{ID: blueSubnet, NetworkID: blueNet, Prefix: netip.MustParsePrefix("10.22.0.0/16"), Gateway: netip.MustParseAddr("10.22.0.1"), MTU: 1442})
	exists := &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "team", Operator: metav1.LabelSelectorOpExists}}}
	b.set(func(s *settings.Settings) {
		s.Networks.Namespaces = []config.NamespaceNetwork{{NamespaceSelector: exists, NetworkChoice: config.NetworkChoice{Mode: "namespace"}}}
		s.Networks.MinFree = 1
		s.Projects = []config.Project{
			{ProjectID: "blue-project", NamespaceSelector: labelled("team", "blue"), SecurityGroupIDs: []string{otherGroup}},
			{ProjectID: "green-project"},
		}
	})
}

// team returns a namespace with a network of its own. Nothing but its label is left of an earlier
// test.
func (b *bed) team(name string) *corev1.Namespace {
	b.t.Helper()
	ns := b.namespace(name)
	b.t.Cleanup(func() {
		ctx := context.Background()
		_ = b.client.Patch(ctx, ns, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, v1.ProjectAnnotation)))
		n := &v1.KuryrNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name}}
		_ = b.client.Patch(ctx, n, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		_ = b.client.Delete(ctx, n)
	})
	b.label(ns, "team", name)
	b.followed(ns)
	return ns
}

// followed waits until the controller's cache shows the last change of a namespace or KuryrNetwork.
// The controller may see a pod that is created after the change before the change.
func (b *bed) followed(obj client.Object) {
	b.t.Helper()
	if b.manager == nil {
		return
	}
	is := client.Object(kube.NamespaceMeta())
	if _, ok := obj.(*v1.KuryrNetwork); ok {
		is = &v1.KuryrNetwork{}
	}
	b.eventually("the controller knows the change of "+obj.GetName(), func() bool {
		err := b.manager.GetCache().Get(b.t.Context(), client.ObjectKeyFromObject(obj), is)
		return err == nil && !kube.Older(is.GetResourceVersion(), obj.GetResourceVersion())
	})
}

// annotate sets an annotation of an object, or removes it if value is empty.
func (b *bed) annotate(obj client.Object, key, value string) {
	b.t.Helper()
	text := "null"
	if value != "" {
		text = `"` + value + `"`
	}
	if err := b.client.Patch(b.t.Context(), obj, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, key, text))); err != nil {
		b.t.Fatal(err)
	}
	if ns, is := obj.(*corev1.Namespace); is {
		b.followed(ns)
	}
}

// planned writes a namespace's KuryrNetwork, as the planner of networks does. It has a finalizer, as
// the applier's.
func (b *bed) planned(ns *corev1.Namespace, project string) *v1.KuryrNetwork {
	b.t.Helper()
	n := &v1.KuryrNetwork{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: ns.Name, Finalizers: []string{v1.NetworkFinalizer}},
		Spec: v1.KuryrNetworkSpec{
			Mode: v1.NetworkNamespace, NamespaceUID: string(ns.UID), ProjectID: project,
			Subnets: []v1.NetworkSubnet{{IPVersion: 4, SubnetPoolID: "pool"}},
		},
	}
	b.create(n)
	return n
}

// applied writes the status of a KuryrNetwork, as the applier of networks does.
func (b *bed) applied(n *v1.KuryrNetwork, ready metav1.ConditionStatus, reason, message, network string, subnets ...string) {
	b.t.Helper()
	n.Status = v1.KuryrNetworkStatus{NetworkID: network, MTU: 1442, Conditions: []metav1.Condition{{
		Type: v1.ConditionReady, Status: ready, Reason: reason, Message: message, LastTransitionTime: metav1.Now(),
	}}}
	cidrs := map[string]string{redSubnet: "10.21.0", redMore: "10.23.0", blueSubnet: "10.22.0"}
	for _, id := range subnets {
		n.Status.Subnets = append(n.Status.Subnets, v1.NetworkSubnetStatus{ID: id, IPVersion: 4, CIDR: cidrs[id] + ".0/16", Gateway: cidrs[id] + ".1"})
	}
	if err := b.client.Status().Update(b.t.Context(), n); err != nil {
		b.t.Fatal(err)
	}
	b.followed(n)
}

// network makes a namespace's KuryrNetwork that is ready.
func (b *bed) network(ns *corev1.Namespace, project, network string, subnets ...string) *v1.KuryrNetwork {
	b.t.Helper()
	n := b.planned(ns, project)
	b.applied(n, metav1.ConditionTrue, v1.ReasonReady, "The network is there.", network, subnets...)
	return n
}

// freeIn returns the number of free ports in a network.
func (b *bed) freeIn(network string) (n int) {
	for _, p := range b.ports() {
		if p.Spec.NetworkID == network && p.Spec.PodRef == nil && p.DeletionTimestamp.IsZero() {
			n++
		}
	}
	return n
}

// TestNetworksOfNamespaces: the pods of a namespace with a network of its own have ports of that
// network, that project and its security groups, and of no other, however they come and go. Pools of
// such namespaces have a min of their own. Other namespaces have the common network.
func TestNetworksOfNamespaces(t *testing.T) {
	b := apartBed(t)
	b.start()
	red, blue := b.team("red"), b.team("blue")
	b.network(red, "", redNet, redSubnet)
	b.network(blue, "blue-project", blueNet, blueSubnet)
	first := b.bound(b.pod("first", inNamespace("red")))
	b.eventually("a free port of red is there", func() bool { return b.freeIn(redNet) == 1 })
	if p := b.poolOf(first).Spec; p.Min != 1 || p.Key.Namespace != "red" || p.Key.NetworkID != redNet || p.Key.ProjectID != "" {
		t.Errorf("the pool of red is %+v, want one of its network, in the common project, with min 1", p)
	}
	var pods []*corev1.Pod
	for i := range 4 {
		for _, ns := range []string{"red", "blue", "default"} {
			pods = append(pods, b.pod(fmt.Sprint("web-", i), inNamespace(ns)))
		}
		if i == 1 { // the ports of these are free when the next pods come
			for _, pod := range pods {
				b.bound(pod)
				b.delete(pod)
			}
			pods = nil
		}
	}
	type home struct{ namespace, project, network, subnet, group string }
	want := map[string]home{
		"red":     {"red", "", redNet, redSubnet, group},
		"blue":    {"blue", "blue-project", blueNet, blueSubnet, otherGroup},
		"default": {"", "", network, subnet, group},
	}
	for _, pod := range pods {
		port := b.bound(pod)
		got := home{b.poolOf(port).Spec.Key.Namespace, port.Spec.ProjectID, port.Spec.NetworkID, port.Spec.VIF.Addresses[0].SubnetID, port.Spec.SecurityGroupIDs[0]}
		if got != want[pod.Namespace] {
			t.Errorf("pod %s/%s has a port of %+v, want %+v", pod.Namespace, pod.Name, got, want[pod.Namespace])
		}
	}
}

// TestPodsWaitForTheirNetwork: while a namespace's network is not ready its pods wait, and are told
// why, once for each reason. Other namespaces are served.
func TestPodsWaitForTheirNetwork(t *testing.T) {
	b := apartBed(t)
	b.start()
	red := b.team("red")
	pod := b.pod("waits", inNamespace("red"))
	b.eventOn("waits", v1.ReasonNotPlanned)
	n := b.planned(red, "")
	b.applied(n, metav1.ConditionFalse, v1.ReasonSubnetExhausted, "Subnet pool p has no prefix left.", "")
	b.mentions("the Event", b.eventOn("waits", v1.ReasonSubnetExhausted), "has no prefix left")
	b.bound(b.pod("other"))
	b.never("the pod has a port", func() bool { return b.portOf(pod) != nil })
	b.applied(n, metav1.ConditionTrue, v1.ReasonReady, "The network is there.", redNet, redSubnet)
	if port := b.bound(pod); port.Spec.NetworkID != redNet {
		t.Errorf("the pod has a port of network %s, want its namespace's", port.Spec.NetworkID)
	}
	b.eventually("a free port of red is there", func() bool { return b.freeIn(redNet) == 1 })
	// Not ready for a while: pools keep what they have.
	b.applied(n, metav1.ConditionFalse, v1.ReasonNetworkMissing, "Router r has no interface in subnet s.", redNet, redSubnet)
	second := b.pod("second", inNamespace("red"))
	b.eventOn("second", v1.ReasonNetworkMissing)
	b.never("the free port leaves", func() bool { return b.freeIn(redNet) != 1 })
	b.applied(n, metav1.ConditionTrue, v1.ReasonReady, "The network is there.", redNet, redSubnet)
	b.bound(second)
}

// TestForeignKuryrNetwork: the KuryrNetwork of an earlier namespace of the same name gives no ports.
func TestForeignKuryrNetwork(t *testing.T) {
	b := apartBed(t)
	b.start()
	red := b.team("red").DeepCopy()
	red.UID = "another"
	b.network(red, "", redNet, redSubnet)
	pod := b.pod("waits", inNamespace("red"))
	b.eventOn("waits", v1.ReasonDeleting)
	if b.portOf(pod) != nil || b.cloud.Ports() > 0 {
		t.Error("the pod has a port of the network of an earlier namespace")
	}
}

// TestModeChanges: pods that have ports keep them. New pods use the network that the namespace has
// by then. The pools of the former network lose their free ports, and end with their last port.
func TestModeChanges(t *testing.T) {
	b := apartBed(t)
	b.start()
	red := b.team("red")
	b.network(red, "", redNet, redSubnet)
	pod := b.pod("old", inNamespace("red"))
	port := b.bound(pod)
	b.eventually("a free port of red is there", func() bool { return b.freeIn(redNet) == 1 })
	b.label(red, "team", "")
	b.followed(red)
	b.eventually("the free ports of the former network go", func() bool { return b.freeIn(redNet) == 0 })
	second := b.pod("new", inNamespace("red"))
	if got := b.bound(second); got.Spec.NetworkID != network {
		t.Errorf("the new pod has a port of network %s, want the common one", got.Spec.NetworkID)
	}
	if now := b.bound(pod); now.Name != port.Name || !now.DeletionTimestamp.IsZero() {
		t.Errorf("the old pod has port %s, want %s as before", now.Name, port.Name)
	}
	b.label(red, "team", "red")
	b.followed(red)
	third := b.bound(b.pod("third", inNamespace("red")))
	if third.Spec.Pool != port.Spec.Pool {
		t.Errorf("with its own network again the namespace has pool %s, want %s as before", third.Spec.Pool, port.Spec.Pool)
	}
	b.label(red, "team", "")
	b.followed(red)
	for _, pod := range []client.Object{pod, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "red", Name: "third"}}} {
		b.delete(pod)
	}
	b.eventually("the pools of the former network are gone", func() bool {
		return !slices.ContainsFunc(b.pools(), func(p v1.KuryrPortPool) bool { return p.Spec.Key.Namespace != "" })
	})
	b.settled(1)
}

// TestTenantThatIsNamedNoMore: a namespace that loses the label or the annotation which puts it in a
// project stays there, and its new pods too, until its KuryrNetwork is deleted.
func TestTenantThatIsNamedNoMore(t *testing.T) {
	b := apartBed(t)
	b.start()
	blue, red := b.team("blue"), b.team("red")
	b.label(red, "team", "")
	b.followed(red)
	b.annotate(red, v1.ProjectAnnotation, "green-project")
	networks := map[string]*v1.KuryrNetwork{
		"blue": b.network(blue, "blue-project", blueNet, blueSubnet),
		"red":  b.network(red, "green-project", redNet, redSubnet),
	}
	before := map[string]*v1.KuryrPort{}
	for name := range networks {
		before[name] = b.bound(b.pod("old", inNamespace(name)))
	}
	b.eventually("each network has a free port again", func() bool { return b.freeIn(redNet) == 1 && b.freeIn(blueNet) == 1 })
	b.label(blue, "team", "")
	b.followed(blue)
	b.annotate(red, v1.ProjectAnnotation, "")
	b.never("a free port leaves", func() bool { return b.freeIn(redNet) == 0 || b.freeIn(blueNet) == 0 })
	for name := range networks {
		if port, old := b.bound(b.pod("new", inNamespace(name))), before[name]; port.Spec.Pool != old.Spec.Pool || port.Spec.ProjectID != old.Spec.ProjectID {
			t.Errorf("the new pod of %s has a port of pool %s in project %q, want %s in %q", name, port.Spec.Pool, port.Spec.ProjectID, old.Spec.Pool, old.Spec.ProjectID)
		}
	}
	b.applied(networks["blue"], metav1.ConditionFalse, v1.ReasonNetworkMissing, "The network is gone.", blueNet, blueSubnet)
	b.pod("waits", inNamespace("blue"))
	b.eventOn("waits", v1.ReasonNetworkMissing)
	b.delete(networks["red"])
	b.eventually("the controller knows that the KuryrNetwork ends", func() bool {
		is := &v1.KuryrNetwork{}
		err := b.manager.GetCache().Get(b.t.Context(), client.ObjectKeyFromObject(networks["red"]), is)
		return err != nil || !is.DeletionTimestamp.IsZero()
	})
	if port := b.bound(b.pod("common", inNamespace("red"))); port.Spec.ProjectID != "" || port.Spec.NetworkID != network {
		t.Errorf("after the KuryrNetwork's deletion a pod has a port in project %q, network %s; want the common ones", port.Spec.ProjectID, port.Spec.NetworkID)
	}
}

// TestDeletedNetworkIsEmptied: a KuryrNetwork that is being deleted loses its free ports at once and
// the others with their pods.
func TestDeletedNetworkIsEmptied(t *testing.T) {
	b := apartBed(t)
	b.start()
	n := b.network(b.team("red"), "", redNet, redSubnet)
	pod := b.pod("old", inNamespace("red"))
	port := b.bound(pod)
	b.eventually("a free port of red is there", func() bool { return b.freeIn(redNet) == 1 })
	b.delete(n)
	b.settled(1)
	b.pod("late", inNamespace("red"))
	b.eventOn("late", v1.ReasonDeleting)
	if now := b.bound(pod); now.Name != port.Name {
		t.Errorf("the running pod has port %s, want %s", now.Name, port.Name)
	}
	b.delete(pod)
	b.settled(0)
}

// TestBlockedNamespace: a namespace that asks for a project which the configuration does not list
// gets no ports, and its pods are told. It gets them once it asks for a listed one.
func TestBlockedNamespace(t *testing.T) {
	b := apartBed(t)
	b.start()
	red := b.team("red")
	b.annotate(red, v1.ProjectAnnotation, "foreign")
	pod := b.pod("waits", inNamespace("red"))
	b.mentions("the Event", b.eventOn("waits", v1.ReasonNotAllowed), v1.ProjectAnnotation, "foreign")
	b.network(red, "green-project", redNet, redSubnet)
	b.never("the pod has a port", func() bool { return b.portOf(pod) != nil || b.cloud.Ports() > 0 })
	b.annotate(red, v1.ProjectAnnotation, "green-project")
	if port := b.bound(pod); port.Spec.ProjectID != "green-project" || port.Spec.NetworkID != redNet {
		t.Errorf("the pod has a port of project %s in network %s", port.Spec.ProjectID, port.Spec.NetworkID)
	}
}

// TestNetworksOfAnOlderServer: an API server without the kind serves the pods of other namespaces.
func TestNetworksOfAnOlderServer(t *testing.T) {
	t.Parallel()
	servers.Store(t, apitest.StartWith(t, "openstack.org_kuryrports.yaml", "openstack.org_kuryrportpools.yaml").Config)
	b := apartBed(t)
	b.start()
	ns := b.namespace("red")
	b.label(ns, "team", "red")
	pod := b.pod("waits", inNamespace("red"))
	b.bound(b.pod("served"))
	b.mentions("the Event", b.eventOn("waits", v1.ReasonNotPlanned), "CustomResourceDefinitions")
	if b.portOf(pod) != nil {
		t.Error("the pod has a port")
	}
}

// TestRestartKeepsNetworks: a new controller makes and deletes nothing, and asks the cloud nothing
// before pods have ports.
func TestRestartKeepsNetworks(t *testing.T) {
	b := apartBed(t)
	b.current.Orphans = config.New().Orphans // no comparison with the cloud during the test
	b.set(func(*settings.Settings) {})
	b.start()
	b.network(b.team("red"), "", redNet, redSubnet, redMore)
	b.cloud.AddSubnet(memory.Subnet{ID: redMore, NetworkID: redNet, Prefix: netip.MustParsePrefix("10.23.0.0/16"), MTU: 1442})
	b.bound(b.pod("old", inNamespace("red")))
	b.eventually("a free port of red is there", func() bool { return b.freeIn(redNet) == 1 })
	b.settled(2)
	b.stop()
	free := b.free().Name
	calls := []string{memory.CreatePorts, memory.DeletePort, memory.UpdatePort, memory.GetPort, memory.ListPorts, memory.Room, memory.Sees, memory.GetDetails}
	before := map[string]int{}
	for _, call := range calls {
		before[call] = b.cloud.Calls(call)
	}
	release := b.block(memory.CreatePorts) // the refill
	defer release()
	b.start()
	if port := b.bound(b.pod("new", inNamespace("red"))); port.Name != free {
		t.Errorf("the pod has port %s, want the free one of before, %s", port.Name, free)
	}
	for _, call := range calls[1:] {
		if n := b.cloud.Calls(call) - before[call]; n != 0 && call != memory.Room && call != memory.UpdatePort {
			t.Errorf("%d calls of %s", n, call)
		}
	}
}

// TestFullNamespaceGrows: when the first subnet of a namespace is full, its pods have addresses of
// the next. The pool stays.
func TestFullNamespaceGrows(t *testing.T) {
	b := apartBed(t)
	b.cloud.AddSubnet(memory.Subnet{ID: redSubnet, NetworkID: redNet, Prefix: netip.MustParsePrefix("10.21.0.0/29"), MTU: 1442})
	b.cloud.AddSubnet(memory.Subnet{ID: redMore, NetworkID: redNet, Prefix: netip.MustParsePrefix("10.23.0.0/16"), MTU: 1442})
	b.start()
	n := b.network(b.team("red"), "", redNet, redSubnet)
	var pods []*corev1.Pod
	for i := range 8 {
		pods = append(pods, b.pod(fmt.Sprint("web-", i), inNamespace("red")))
	}
	b.eventually("the subnet is full", func() bool { return b.cloud.Ports() == 6 })
	b.applied(n, metav1.ConditionTrue, v1.ReasonReady, "The network is there.", redNet, redSubnet, redMore)
	in := map[string]int{}
	for _, pod := range pods {
		in[b.bound(pod).Spec.VIF.Addresses[0].SubnetID]++
	}
	if in[redSubnet] != 6 || in[redMore] != 2 {
		t.Errorf("pods have addresses of %v, want 6 of the first and 2 of the second subnet", in)
	}
	if n := len(b.pools()); n != 1 {
		t.Errorf("there are %d pools, want the one of before", n)
	}
}

// subnetReads counts the reads of each subnet.
type subnetReads struct {
	sdn.Backend
	mu sync.Mutex
	of map[string]int
}

func (r *subnetReads) Details(ctx context.Context, id string) (v1.VIF, error) {
	r.mu.Lock()
	r.of[id]++
	r.mu.Unlock()
	return r.Backend.Details(ctx, id)
}

func (r *subnetReads) about(id string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.of[id]
}

// TestChangedNetworkOfANamespace: free ports follow a change of a namespace's network. The cloud is
// asked about its subnets only then.
func TestChangedNetworkOfANamespace(t *testing.T) {
	b := apartBed(t)
	b.looking = 100 * time.Millisecond
	reads := &subnetReads{Backend: b.cloud.Backend("cluster"), of: map[string]int{}}
	b.backend = reads
	b.start()
	n := b.network(b.team("red"), "", redNet, redSubnet)
	b.bound(b.pod("old", inNamespace("red")))
	b.eventually("a free port of red is there", func() bool { return b.freeIn(redNet) == 1 })
	old := b.free().Name
	b.eventually("the common subnet is read", func() bool { return reads.about(subnet) > 1 })
	if asked := reads.about(redSubnet); asked != 0 {
		t.Errorf("the namespace's subnet is read %d times though it has not changed", asked)
	}
	b.cloud.AddSubnet(memory.Subnet{ID: redSubnet, NetworkID: redNet, Prefix: netip.MustParsePrefix("10.21.0.0/16"), Gateway: netip.MustParseAddr("10.21.0.1"), MTU: 1400})
	n.Status.MTU = 1400
	if err := b.client.Status().Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	b.eventually("the free port is a new one", func() bool {
		p := b.free()
		return p != nil && p.Name != old && p.Spec.VIF.MTU == 1400 && b.freeIn(redNet) == 1
	})
}

// TestSubnetsOfSomeNodes: a node with subnets of its own has pools there. Others keep theirs.
func TestSubnetsOfSomeNodes(t *testing.T) {
	b := apartBed(t)
	b.start()
	common := b.bound(b.pod("before"))
	b.set(func(s *settings.Settings) {
		s.Nodes = []config.NodePorts{{NodeSelector: labelled("rack", "red"), SubnetIDs: []string{redSubnet}}}
	})
	b.create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rack-1", Labels: map[string]string{"rack": "red"}}})
	port := b.bound(b.pod("rack", func(p *corev1.Pod) { p.Spec.NodeName = "rack-1" }))
	if key := b.poolOf(port).Spec.Key; !slices.Equal(key.SubnetIDs, []string{redSubnet}) || port.Spec.NetworkID != redNet {
		t.Errorf("the pool of the rack has key %+v", key)
	}
	if again := b.bound(b.pod("again")); again.Spec.Pool != common.Spec.Pool {
		t.Errorf("the pool of the other node is %s, want %s as before", again.Spec.Pool, common.Spec.Pool)
	}
}
