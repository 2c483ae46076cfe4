// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync/atomic"
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

const (
	netRouter = "5f1c5aac-0000-4000-8000-0000000000e1"
	netPool   = "5f1c5aac-0000-4000-8000-0000000000e4"
)

// netBed is a bed whose namespaces have networks of their own, in a mode. No namespace controller
// runs: a test deletes KuryrNetworks itself.
type netBed struct {
	*bed
	namespace string
}

var netNames atomic.Int64

// netCloud has the roles that networks of namespaces need.
type netCloud interface {
	sdn.Networks
	sdn.Routers
	sdn.SubnetPools
	sdn.Subnets
}

func newNetBed(t *testing.T, mode string, change ...func(*settings.Settings)) *netBed {
	t.Helper()
	b := &netBed{idleBed(t), fmt.Sprintf("net-%d-%d", time.Now().UnixNano()%1e9, netNames.Add(1))}
	b.networked = true
	b.cloud.AddRouter(netRouter, netip.MustParseAddr("192.0.2.7"))
	b.cloud.AddSubnetPool(memory.SubnetPool{ID: netPool, Prefix: netip.MustParsePrefix("10.200.0.0/16"), Length: 24})
	b.set(func(s *settings.Settings) {
		s.Networks.Mode, s.Networks.RouterID, s.Networks.SubnetPoolIDs = mode, netRouter, []string{netPool}
		s.Networks.Ranges = []string{"10.0.0.0/8"}
		for _, f := range change {
			f(s)
		}
	})
	t.Cleanup(func() { b.wipe() })
	return b
}

// wipe stops the controller and removes pods and KuryrNetworks: the namespaces stay, and later tests
// on this API server must not get networks for them.
func (b *netBed) wipe() {
	if b.stop != nil {
		b.stop()
	}
	ctx := context.Background()
	var pods corev1.PodList
	_ = b.client.List(ctx, &pods)
	for i := range pods.Items {
		_ = b.client.Delete(ctx, &pods.Items[i], client.GracePeriodSeconds(0))
	}
	var list v1.KuryrNetworkList
	_ = b.client.List(ctx, &list)
	for i := range list.Items {
		_ = b.client.Patch(ctx, &list.Items[i], client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
		_ = b.client.Delete(ctx, &list.Items[i])
	}
}

func (b *netBed) makeNamespace(name string, annotations map[string]string) {
	b.t.Helper()
	b.create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}})
}

// waiting creates a pod that is not scheduled yet.
func (b *netBed) waiting(namespace, name string) *corev1.Pod {
	return b.pod(name, func(p *corev1.Pod) { p.Namespace, p.Spec.NodeName = namespace, "" })
}

func (b *netBed) kn(namespace string) *v1.KuryrNetwork {
	kn := &v1.KuryrNetwork{}
	if err := b.client.Get(b.t.Context(), client.ObjectKey{Namespace: namespace, Name: namespace}, kn); err != nil {
		return nil
	}
	return kn
}

func (b *netBed) reason(namespace, condition string) string {
	kn := b.kn(namespace)
	if kn == nil {
		return "no KuryrNetwork"
	}
	c := meta.FindStatusCondition(kn.Status.Conditions, condition)
	if c == nil {
		return ""
	}
	return c.Reason
}

// ready waits for the network of a namespace.
func (b *netBed) ready(namespace string) *v1.KuryrNetwork {
	b.t.Helper()
	b.eventually("the network of "+namespace+" is ready", func() bool {
		kn := b.kn(namespace)
		return kn != nil && meta.IsStatusConditionTrue(kn.Status.Conditions, v1.ConditionReady) &&
			meta.FindStatusCondition(kn.Status.Conditions, v1.ConditionReady).ObservedGeneration == kn.Generation
	})
	return b.kn(namespace)
}

// owned returns the networks that the cloud has for the cluster.
func (b *netBed) owned() (all []sdn.Network) {
	for _, n := range b.cloud.Networks() {
		if n.Cluster == "cluster" {
			all = append(all, n.Network)
		}
	}
	return all
}

func (b *netBed) deleteNetworkOf(namespace string) {
	b.t.Helper()
	if kn := b.kn(namespace); kn != nil {
		b.delete(kn)
	}
}

// told reports whether there is an Event with a reason and a word on the namespace.
func (b *netBed) toldNamespace(namespace, reason, word string) bool {
	var list eventsv1.EventList
	if err := b.client.List(b.t.Context(), &list, client.InNamespace(namespace)); err != nil {
		b.t.Fatal(err)
	}
	for _, e := range list.Items {
		if e.Regarding.Kind == "Namespace" && e.Reason == reason && strings.Contains(e.Note, word) {
			return true
		}
	}
	return false
}

// The first pod of a namespace brings its network, with few calls: the network, its subnet, the
// router interface, and once for all namespaces the router and the subnet of pods.
func TestNetworkOfTheFirstPod(t *testing.T) {
	for _, mode := range []string{"flat", "namespace"} {
		t.Run(mode, func(t *testing.T) {
			b := newNetBed(t, mode)
			b.start()
			b.makeNamespace(b.namespace, nil)
			b.never("a namespace without pods has a network", func() bool { return b.kn(b.namespace) != nil })
			b.waiting(b.namespace, "first")
			kn := b.ready(b.namespace)
			if len(kn.Status.Subnets) != 1 || !kn.Status.Subnets[0].Routed || kn.Status.RouterID != netRouter || kn.Status.NetworkID == "" {
				t.Fatalf("status %+v", kn.Status)
			}
			if r := kn.Status.NodeRoutes; len(r) != 1 || r[0].Gateway != "192.0.2.7" || r[0].Destination != kn.Status.Subnets[0].CIDR {
				t.Errorf("nodeRoutes are %v", r)
			}
			if want := "10.0.0.0/16"; mode == "flat" && kn.Status.Subnets[0].CIDR != want {
				t.Errorf("the subnet is %s; want the first /16 of the range, %s, that does not overlap with pods' 10.1.0.0/16", kn.Status.Subnets[0].CIDR, want)
			}
			all := b.owned()
			if len(all) != 1 || all[0].ID != kn.Status.NetworkID || all[0].Name != kn.Spec.NamespaceUID+"/"+b.namespace ||
				all[0].Owner != (sdn.Owner{Kind: sdn.KindNetwork, Namespace: b.namespace, Name: b.namespace}) {
				t.Errorf("the cloud has %+v", all)
			}
			for call, want := range map[string]int{
				memory.CreateNetwork: 1, memory.CreateSubnet: 1, memory.AddRouterInterface: 1, memory.GetRouterAddresses: 1, memory.GetNetwork: 0,
			} {
				if got := b.cloud.Calls(call); got != want {
					t.Errorf("%d calls of %s, want %d", got, call, want)
				}
			}
			b.deleteNetworkOf(b.namespace)
			b.waiting(b.namespace, "second")
			b.eventually("another network follows one that a person has deleted", func() bool {
				next := b.kn(b.namespace)
				return next != nil && next.UID != kn.UID && meta.IsStatusConditionTrue(next.Status.Conditions, v1.ConditionReady) && len(b.owned()) == 1
			})
		})
	}
}

// Networks of mode flat do not overlap, whatever the order of their creation, nor with the subnet of
// pods or with a node.
func TestFlatNetworksDoNotOverlap(t *testing.T) {
	b := newNetBed(t, "flat", func(s *settings.Settings) { s.Networks.Ranges = []string{"10.0.0.0/14"} })
	b.start()
	names := []string{b.namespace, b.namespace + "-b", b.namespace + "-c", b.namespace + "-d"}
	for _, name := range names {
		b.makeNamespace(name, nil)
	}
	for _, name := range names {
		b.waiting(name, "first")
	}
	// 10.1.0.0/16 is that of pods, so one of four gets none.
	full := 0
	b.eventually("three namespaces have networks and one is told that the range is full", func() bool {
		full = 0
		for _, name := range names {
			switch {
			case b.reason(name, v1.ConditionPlanned) == v1.ReasonRangeFull && b.reason(name, v1.ConditionReady) == v1.ReasonNotPlanned:
				full++
			case b.reason(name, v1.ConditionReady) != v1.ReasonReady:
				return false
			}
		}
		return full == 1
	})
	var all []netip.Prefix
	for _, n := range b.owned() {
		for _, s := range n.Subnets {
			for _, other := range append(all, netip.MustParsePrefix("10.1.0.0/16")) {
				if other.Overlaps(s.Prefix) {
					t.Errorf("%s overlaps with %s", s.Prefix, other)
				}
			}
			all = append(all, s.Prefix)
		}
	}
	b.set(func(s *settings.Settings) { s.Networks.Ranges = []string{"10.0.0.0/14", "172.16.0.0/12"} })
	for _, name := range names {
		b.ready(name)
	}
}

// An emptied status is found again in the cloud: nothing is made twice.
func TestAnEmptiedNetworkStatus(t *testing.T) {
	b := newNetBed(t, "flat")
	b.start()
	b.makeNamespace(b.namespace, nil)
	b.waiting(b.namespace, "first")
	kn := b.ready(b.namespace)
	if err := b.client.Status().Patch(t.Context(), kn.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"status":null}`))); err != nil {
		t.Fatal(err)
	}
	b.eventually("the network is found", func() bool {
		again := b.kn(b.namespace)
		return again.Status.NetworkID == kn.Status.NetworkID && again.ResourceVersion != kn.ResourceVersion && len(again.Status.Subnets) == 1
	})
	if n := len(b.owned()); n != 1 {
		t.Errorf("the cloud has %d networks, want 1", n)
	}
}

// What the cloud refuses is told with its reason, and made as soon as the cloud lets Kuryr.
func TestRefusedNetworks(t *testing.T) {
	for reason, c := range map[string]struct {
		call string
		err  error
	}{
		v1.ReasonOverQuota:       {memory.CreateNetwork, sdn.ErrProjectQuota},
		v1.ReasonSubnetExhausted: {memory.CreateSubnet, sdn.ErrAddresses},
		v1.ReasonOverlap:         {memory.AddRouterInterface, sdn.ErrOverlap},
		v1.ReasonRejected:        {memory.AddRouterInterface, &sdn.InvalidError{Field: sdn.FieldRouter, Err: errors.New("no router")}},
		v1.ReasonForbidden:       {memory.CreateNetwork, sdn.ErrForbidden},
		v1.ReasonUnavailable:     {memory.CreateNetwork, sdn.ErrUnavailable},
	} {
		t.Run(reason, func(t *testing.T) {
			b := newNetBed(t, "flat")
			b.fail(c.call, c.err)
			b.start()
			b.makeNamespace(b.namespace, nil)
			b.waiting(b.namespace, "first")
			b.eventually("the reason is told", func() bool { return b.reason(b.namespace, v1.ConditionReady) == reason })
			version := b.kn(b.namespace).ResourceVersion
			b.never("the same status is written again", func() bool { return b.kn(b.namespace).ResourceVersion != version })
			b.fail("", nil)
			b.ready(b.namespace)
			if n := len(b.owned()); n != 1 {
				t.Errorf("the cloud has %d networks, want 1", n)
			}
		})
	}
}

// A creation whose answer is lost is found by its name: no second network is made.
func TestLostAnswersOfNetworks(t *testing.T) {
	for _, call := range []string{memory.CreateNetwork, memory.CreateSubnet, memory.AddRouterInterface} {
		t.Run(call, func(t *testing.T) {
			b := newNetBed(t, "flat")
			var lost atomic.Bool
			b.onAfter(func(_ context.Context, c string, _ int) error {
				if c == call && lost.CompareAndSwap(false, true) {
					return sdn.ErrUnavailable
				}
				return nil
			})
			b.start()
			b.makeNamespace(b.namespace, nil)
			b.waiting(b.namespace, "first")
			b.ready(b.namespace)
			if n := b.owned(); len(n) != 1 || len(n[0].Subnets) != 1 {
				t.Errorf("the cloud has %+v, want one network with one subnet", n)
			}
		})
	}
}

// The network of a namespace that is deleted while it is made is not left over.
func TestANamespaceThatIsDeletedWhileItsNetworkIsMade(t *testing.T) {
	b := newNetBed(t, "flat")
	release := b.block(memory.CreateSubnet)
	b.start()
	b.makeNamespace(b.namespace, nil)
	pod := b.waiting(b.namespace, "first")
	b.eventually("the network is made", func() bool { return len(b.owned()) == 1 })
	b.delete(pod)
	b.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}})
	b.deleteNetworkOf(b.namespace)
	release()
	b.eventually("nothing is left", func() bool { return b.kn(b.namespace) == nil && len(b.owned()) == 0 })
}

// The deletion waits while the router interface is needed, and says so.
func TestADeletionOfANetworkThatWaits(t *testing.T) {
	b := newNetBed(t, "flat")
	b.start()
	b.makeNamespace(b.namespace, nil)
	pod := b.waiting(b.namespace, "first")
	kn := b.ready(b.namespace)
	b.delete(pod)
	b.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}})
	b.cloud.NeedRouterInterface(netRouter, kn.Status.Subnets[0].ID, true)
	b.deleteNetworkOf(b.namespace)
	b.eventually("the deletion says that it waits", func() bool { return b.reason(b.namespace, v1.ConditionReady) == v1.ReasonNetworkInUse })
	b.cloud.NeedRouterInterface(netRouter, kn.Status.Subnets[0].ID, false)
	b.eventually("nothing is left", func() bool { return b.kn(b.namespace) == nil && len(b.owned()) == 0 })
}

// A network that another user of the cloud deletes is made again, as no port needs it.
func TestANetworkDeletedBehindKuryrsBack(t *testing.T) {
	b := newNetBed(t, "namespace")
	b.start()
	b.makeNamespace(b.namespace, nil)
	pod := b.waiting(b.namespace, "first")
	kn := b.ready(b.namespace)
	b.delete(pod)
	b.cloud.RemoveNetwork(kn.Status.NetworkID)
	b.eventuallyIn(15*time.Second, "another network is made", func() bool {
		again := b.kn(b.namespace)
		return again.Status.NetworkID != kn.Status.NetworkID && b.reason(b.namespace, v1.ConditionReady) == v1.ReasonReady && len(b.owned()) == 1
	})
}

// A network that no KuryrNetwork names is deleted after the grace period; that of another user is
// not.
func TestNetworksThatAreLeftOver(t *testing.T) {
	b := newNetBed(t, "flat")
	left, err := b.cloud.Backend("cluster").CreateNetwork(t.Context(), sdn.Owner{Kind: sdn.KindNetwork, Namespace: "gone", Name: "gone"}, sdn.NetworkSpec{Name: "u/gone"})
	if err != nil {
		t.Fatal(err)
	}
	foreign := b.cloud.AddForeignNetwork("u/gone")
	b.start()
	b.eventuallyIn(15*time.Second, "the network "+left.ID+" is deleted", func() bool { return len(b.owned()) == 0 })
	for _, n := range b.cloud.Networks() {
		if n.Network.ID == foreign {
			return
		}
	}
	t.Error("a network of somebody else was deleted")
}

// A project or network that the namespace may not have gives it none, and an Event that names the
// field.
func TestANamespaceThatAsksForWhatIsNotAllowed(t *testing.T) {
	b := newNetBed(t, "flat")
	b.start()
	b.makeNamespace(b.namespace, map[string]string{v1.ProjectAnnotation: "foreign-project"})
	b.waiting(b.namespace, "first")
	b.eventually("the Event names the annotation", func() bool { return b.toldNamespace(b.namespace, v1.ReasonNotAllowed, v1.ProjectAnnotation) })
	b.never("a network is made", func() bool { return b.kn(b.namespace) != nil || len(b.owned()) > 0 })
}

// A network that no pod uses is replaced when the mode changes.
func TestAModeThatChanges(t *testing.T) {
	b := newNetBed(t, "flat")
	b.start()
	b.makeNamespace(b.namespace, nil)
	b.waiting(b.namespace, "first").DeepCopy()
	kn := b.ready(b.namespace)
	b.set(func(s *settings.Settings) { s.Networks.Mode = "namespace" })
	// The pod waits for a port of the network that is ready.
	b.eventually("the change waits", func() bool { return b.reason(b.namespace, v1.ConditionPlanned) == v1.ReasonWaitsForPods })
	b.delete(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: "first"}})
	b.eventually("the old network is deleted", func() bool { return b.kn(b.namespace) == nil && len(b.owned()) == 0 })
	b.waiting(b.namespace, "second")
	if next := b.ready(b.namespace); next.Spec.Mode != v1.NetworkNamespace || next.UID == kn.UID {
		t.Errorf("the next KuryrNetwork is %+v", next.Spec)
	}
}

// A restart asks the cloud for nothing when networks are ready.
func TestARestartWithNetworks(t *testing.T) {
	b := newNetBed(t, "flat", func(s *settings.Settings) { s.Orphans.Interval.Duration = time.Hour })
	b.start()
	b.makeNamespace(b.namespace, nil)
	b.waiting(b.namespace, "first")
	b.ready(b.namespace)
	b.stop()
	calls := func() (n int) {
		for _, call := range []string{memory.ListNetworks, memory.GetNetwork, memory.GetRouterAddresses, memory.GetSubnet} {
			n += b.cloud.Calls(call)
		}
		return n
	}
	before := calls()
	b.start()
	b.never("networks that are ready cost requests after a restart", func() bool { return calls() != before })
}
