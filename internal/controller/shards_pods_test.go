// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/pools"
	applier "github.com/kuryr-go/kuryr/internal/controller/ports"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// sharded returns a bed whose controller owns what the gate has open: nothing at first. nodeKeys are
// the keys of the bed's node.
func sharded(t *testing.T) (b *bed, gate *shards.Gate, nodeKeys shard.Set) {
	b, gate = idleBed(t), shards.NewGate(nil)
	b.current.Orphans = noLooks
	b.shards = gate
	return b, gate, shard.Set{}.With(shard.Bucket("node", node))
}

// give gives a free port to a pod, as the process does that owns the node.
func (b *bed) give(port *v1.KuryrPort, pod *corev1.Pod) {
	b.t.Helper()
	port.Spec.PodRef = &v1.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Interface: "eth0", Default: true}
	if err := b.client.Update(b.t.Context(), port); err != nil {
		b.t.Fatal(err)
	}
}

// TestNodeIsLostAndGained: a pod gets a port only while this process owns its node. What another
// process did meanwhile is seen right, and nothing is done by what was known before. The metrics count
// own nodes only.
func TestNodeIsLostAndGained(t *testing.T) {
	alone(t) // it counts by metrics
	b, gate, keys := sharded(t)
	b.current.Pools.Min, b.current.Pools.TTL = 1, metav1.Duration{Duration: time.Hour}
	b.set(func(*settings.Settings) {})
	before := measured(t)
	b.start()
	first := b.pod("first")
	b.never("a port on a node of another process", func() bool { return len(b.ports())+len(b.pools())+b.cloud.Ports() > 0 })
	gate.Open(t.Context(), keys, false)
	b.bound(first)
	b.settled(2)
	b.eventually("the free port is available", func() bool { p := b.free(); return p != nil && p.Status.Phase == v1.PortAvailable })
	b.since(t, before, tally{"kuryr_ports bound": 1, "kuryr_ports available": 1})

	gate.Close(keys)
	b.eventually("no work is under way", func() bool { return gate.Busy().Len() == 0 })
	gate.Lose(keys)
	b.since(t, before, tally{"kuryr_ports bound": 0, "kuryr_ports available": 0})
	second := b.pod("second")
	given := b.free()
	b.give(given, second)
	b.delete(first)
	b.never("a status, a return or an annotation by a process that does not own the node", func() bool {
		return b.portOf(second).Status.Phase == v1.PortBound || b.portOf(first) == nil || b.cloud.Ports() != 2 || annotationOf(b, second) != ""
	})

	gate.Open(t.Context(), keys, true)
	if port := b.bound(second); port.Name != given.Name {
		t.Errorf("the pod has port %s, want %s, which another process gave it", port.Name, given.Name)
	}
	b.eventually("the pod is annotated", func() bool { return annotationOf(b, second) != "" })
	b.eventually("the port of the deleted pod is free", func() bool { p := b.free(); return p != nil && p.Status.Phase == v1.PortAvailable })
	b.settled(2)
	b.since(t, before, tally{"kuryr_ports bound": 1, "kuryr_ports available": 1})
}

func annotationOf(b *bed, pod *corev1.Pod) string {
	var now corev1.Pod
	if err := b.client.Get(b.t.Context(), client.ObjectKeyFromObject(pod), &now); err != nil {
		b.t.Fatal(err)
	}
	return kube.Annotation(&now)
}

// TestPoolsOfADeletedNodeEndWhenGained: the node and its pods were deleted while its keys had no owner.
func TestPoolsOfADeletedNodeEndWhenGained(t *testing.T) {
	b, gate, keys := sharded(t)
	b.start()
	gate.Open(t.Context(), keys, false)
	pod := b.pod("web")
	b.bound(pod)
	b.eventually("no work is under way", func() bool { return gate.Busy().Len() == 0 })
	gate.Close(keys)
	gate.Lose(keys)
	b.delete(pod)
	b.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	b.never("an end of the port", func() bool { return b.cloud.Ports() == 0 })
	gate.Open(t.Context(), keys, true)
	b.settled(0)
	b.eventually("the pool ends", func() bool { return len(b.pools()) == 0 })
}

// TestNodeIsGivenAwayWithNothingUnderWay: a port that is being made while its node is to be given away
// gets its object first, with its pod.
func TestNodeIsGivenAwayWithNothingUnderWay(t *testing.T) {
	b, gate, keys := sharded(t)
	release := b.block("CreatePorts")
	t.Cleanup(release)
	b.start()
	gate.Open(t.Context(), keys, false)
	pod := b.pod("web")
	b.eventually("the port is being made", func() bool { return gate.Busy().Len() == 1 })
	time.Sleep(200 * time.Millisecond)
	gate.Close(keys)
	b.never("a node without work while a request is in flight", func() bool { return gate.Busy().Len() == 0 })
	late := b.pod("late")
	release()
	b.eventually("no work is under way", func() bool { return gate.Busy().Len() == 0 })
	if port := b.portOf(pod); port == nil {
		t.Error("the node is given away, and the port that was made for a pod has no object")
	}
	gate.Lose(keys)
	b.never("a request for a pod of a node that is given away", func() bool { return b.portOf(late) != nil || b.cloud.Ports() != 1 })
}

// TestPodWithPortsOfTwoPools: two processes have given a pod a port each, from two pools. The plugged
// port stays.
func TestPodWithPortsOfTwoPools(t *testing.T) {
	b := idleBed(t)
	b.current.Orphans = noLooks
	b.set(func(*settings.Settings) {})
	b.start()
	pod := b.pod("web")
	first := b.bound(pod)
	made, err := b.cloud.Backend("cluster").CreatePorts(t.Context(), sdn.Owner{Kind: sdn.KindPool, Name: "older"},
		sdn.PortRequest{NetworkID: network, SubnetIDs: []string{subnet}, SecurityGroupIDs: []string{group}, Host: node}, 1)
	if err != nil {
		t.Fatal(err)
	}
	second := &v1.KuryrPort{ObjectMeta: metav1.ObjectMeta{Name: made[0].ID, Finalizers: []string{v1.PortFinalizer}}, Spec: first.Spec}
	second.Spec.Pool, second.Spec.VIF = "older", made[0].VIF
	b.attach(first, true)
	b.knows("the first port is plugged", func(p *v1.KuryrPort) bool { return p.Name == first.Name && p.Status.Attachment != nil })
	b.create(second)
	b.settled(1)
	if port := b.bound(pod); port.Name != first.Name {
		t.Errorf("port %s is left, want %s, which is plugged", port.Name, first.Name)
	}
}

// TestMemoryOfLostNodes lists the maps of what plans and applies ports. Each is dropped with the node's
// keys, or says why not. A new map needs an answer here.
func TestMemoryOfLostNodes(t *testing.T) {
	t.Parallel()
	dropped := map[string]string{
		"pools.Reconciler.memory.pools":                      "memory.lost",
		"pools.Reconciler.claims.held":                       "work on the key holds claims, and has ended",
		"pools.Reconciler.subnets.known":                     "by subnet; forgotten when no node is owned",
		"pools.Reconciler.subnets.suspects":                  "by subnet; forgotten when no node is owned",
		"pools.Reconciler.sites.ParentPorts.notices.waiting": "Sites.lost",
		"pools.Reconciler.sites.ParentPorts.known.all":       "Sites.lost",
		"pools.Reconciler.sites.ParentPorts.searches.all":    "Sites.lost",
		"pools.Reconciler.sites.ParentPorts.checks.all":      "Sites.lost",
		"pools.Reconciler.sites.Waiting.notices.waiting":     "by namespace; Sites.lost counts anew",
		"pools.Reconciler.Options.Supply.pools":              "Supply.lost",
		"pools.Reconciler.Options.Supply.others":             "Supply.gained: of nodes that are not own",
		"pools.Reconciler.Options.Supply.leaving":            "work on the key: deletions in flight",
		"pools.Reconciler.Options.Supply.capacity.rooms":     "of the cloud, by project and subnet",
		"pools.Reconciler.Options.Supply.capacity.asked.all": "of the cloud, by project and subnet",
		"ports.Reconciler.memory.ports":                      "portMemory.lost",
		"ports.Reconciler.objects.last":                      "a version has Get wait for the cache, which shows it before the key is gained",
	}
	found := map[string]bool{}
	mapsOf(reflect.TypeFor[pools.Reconciler](), "pools.Reconciler", nil, found)
	mapsOf(reflect.TypeFor[applier.Reconciler](), "ports.Reconciler", nil, found)
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if dropped[name] == "" {
			t.Errorf("%s: how is it dropped when its node is lost?", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dropped)) {
		if !found[name] {
			t.Errorf("%s is no map any more", name)
		}
	}
}

// mapsOf finds the maps in a type and in what it holds: not those of the values of maps, of
// interfaces, and of the parts that all processes have in common.
func mapsOf(of reflect.Type, path string, within []reflect.Type, found map[string]bool) {
	if of.Kind() == reflect.Pointer {
		of = of.Elem()
	}
	if controller.IsMap(of) {
		found[path] = true
		return
	}
	parts := []string{"controller/pools", "controller/sites", "controller/supply", "controller/ports", "controller/kube", "internal/keylock", "internal/sdn"}
	ours := slices.ContainsFunc(parts, func(p string) bool { return strings.HasSuffix(of.PkgPath(), p) })
	if of.Kind() != reflect.Struct || !ours || slices.Contains(within, of) || of == reflect.TypeFor[kube.Networks]() {
		return
	}
	for i := range of.NumField() {
		mapsOf(of.Field(i).Type, path+"."+of.Field(i).Name, append(within, of), found)
	}
}
