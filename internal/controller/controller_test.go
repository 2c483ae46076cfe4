// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
	"github.com/kuryr-go/kuryr/internal/sdn/memory"
)

// TestPodGetsAPort: one pod has one port, which costs one call to create and one to delete.
func TestPodGetsAPort(t *testing.T) {
	b := newBed(t)
	pod := b.pod("web")
	port := b.bound(pod)
	want := v1.KuryrPortSpec{
		Pool: port.Spec.Pool, NodeName: node, NetworkID: network, SecurityGroupIDs: []string{group},
		VIF: v1.VIF{Type: "ovs", MACAddress: "fa:16:3e:00:00:01", MTU: 1442, Addresses: []v1.Address{
			{IP: "10.1.0.2", PrefixLength: 16, SubnetID: subnet, Gateway: "10.1.0.1"},
		}},
		PodRef: &v1.PodReference{Namespace: "default", Name: "web", UID: pod.UID, Interface: "eth0", Default: true},
	}
	if diff := cmp.Diff(want, port.Spec); diff != "" {
		t.Errorf("spec of the KuryrPort (-want +got):\n%s", diff)
	}
	if got := port.Labels[v1.PortStatusLabel]; got != "Bound" {
		t.Errorf("label of the KuryrPort = %q, want Bound", got)
	}
	annotation := fmt.Sprintf(`{"eth0": {"versioned_object.data": {"selfLink": "/apis/openstack.org/v1/kuryrports/%s"}}, `+
		`"versioned_object.name": "KuryrPortCRD", "versioned_object.version": "1.0"}`, port.Name)
	b.eventually("the pod is annotated "+annotation, func() bool { return b.annotation(pod) == annotation })
	b.eventually("the pool counts it", func() bool {
		p := b.pools()
		return len(p) == 1 && p[0].Name == port.Spec.Pool && p[0].Status.Bound == 1 && p[0].Status.Total == 1 &&
			p[0].Status.WaitingPods == 0 && meta.IsStatusConditionTrue(p[0].Status.Conditions, v1.ConditionReady) &&
			meta.IsStatusConditionFalse(p[0].Status.Conditions, v1.ConditionProgressing) && p[0].Status.LastRefill != nil
	})
	b.delete(pod)
	b.settled(0)
	b.eventually("the unused pool goes", func() bool { return len(b.pools()) == 0 })
	for call, want := range map[string]int{memory.CreatePorts: 1, memory.DeletePort: 1, memory.UpdatePort: 0, memory.GetPort: 0} {
		if got := b.cloud.Calls(call); got != want {
			t.Errorf("%d calls of %s for one pod, want %d", got, call, want)
		}
	}
}

func (b *bed) annotation(pod *corev1.Pod) string {
	b.t.Helper()
	var got corev1.Pod
	if err := b.client.Get(b.t.Context(), client.ObjectKeyFromObject(pod), &got); err != nil {
		b.t.Fatal(err)
	}
	return got.Annotations[v1.VIFAnnotation]
}

// TestNoPortForHostNetworkNorUnscheduled: hostNetwork pods, pods without a node and finished pods
// get no port.
func TestNoPortForHostNetworkNorUnscheduled(t *testing.T) {
	b := newBed(t)
	b.pod("host", func(p *corev1.Pod) { p.Spec.HostNetwork = true })
	b.pod("pending", func(p *corev1.Pod) { p.Spec.NodeName = "" })
	b.bound(b.pod("web"))
	b.never("a port for another", func() bool { return b.cloud.Ports() != 1 })
}

// TestFinishedPodGivesItsPortBack: a finished pod gives its port back once the port is unplugged,
// and not before.
func TestFinishedPodGivesItsPortBack(t *testing.T) {
	b := newBed(t)
	pod := b.pod("job")
	port := b.bound(pod)
	b.attach(port, true)
	b.setPhase(pod, corev1.PodSucceeded)
	b.never("the port goes while it is plugged", func() bool { return b.cloud.Ports() == 0 })
	b.attach(port, false)
	b.settled(0)
}

// TestPodsOfOneName: pods of the same name differ by their UIDs. The second does not get the port
// of the first while that is plugged.
func TestPodsOfOneName(t *testing.T) {
	b := newBed(t)
	first := b.pod("db-0")
	old := b.bound(first)
	b.attach(old, true)
	b.delete(first)
	second := b.pod("db-0")
	port := b.bound(second)
	if port.Name == old.Name {
		t.Errorf("the second pod has the port of the first, which is still plugged")
	}
	if was, is := boundAt(t, old), boundAt(t, port); !is.After(was) {
		t.Errorf("the port of the second pod is bound at %v, that of the first at %v", is, was)
	}
	b.attach(old, false)
	b.settled(1)
}

// boundAt returns the time by which a daemon tells the ports of pods of one name.
func boundAt(t *testing.T, port *v1.KuryrPort) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, port.Annotations[v1.BoundAnnotation])
	if err != nil {
		t.Errorf("annotation %s of KuryrPort %s: %v", v1.BoundAnnotation, port.Name, err)
	}
	return at
}

// TestPodGoesWhileItsPortIsMade: a pod that is deleted while its port is created leaks nothing.
func TestPodGoesWhileItsPortIsMade(t *testing.T) {
	b := newBed(t)
	release := b.block(memory.CreatePorts)
	defer release()
	pod := b.pod("brief")
	b.eventually("the port is asked for", func() bool { return b.cloud.Calls(memory.CreatePorts) == 1 })
	b.delete(pod)
	time.Sleep(100 * time.Millisecond) // let the controller see the deletion
	release()
	b.eventually("the port is given up", func() bool { return b.cloud.Calls(memory.DeletePort) == 1 })
	b.settled(0)
}

// TestSlowCreationHoldsNobodyUp: a slow creation delays no other pod (invariant 8).
func TestSlowCreationHoldsNobodyUp(t *testing.T) {
	b := newBed(t)
	gate := make(chan struct{})
	defer close(gate)
	b.mu.Lock()
	b.before = func(ctx context.Context, call string, n int) error {
		if call == memory.CreatePorts && n == 1 {
			select {
			case <-gate:
			case <-ctx.Done():
			}
		}
		return nil
	}
	b.mu.Unlock()
	b.pod("slow")
	b.eventually("the first port is asked for", func() bool { return b.cloud.Calls(memory.CreatePorts) == 1 })
	// The first port to arrive rightly serves the oldest pod: so two of three pods are served.
	pods := []*corev1.Pod{b.pod("a"), b.pod("b")}
	b.eventually("two pods are served", func() bool { return len(b.ports()) == 2 })
	_ = pods
}

// TestDeletedByHand: a KuryrPort that is deleted under a living pod is restored as it was. Its port
// stays in the cloud all the time.
func TestDeletedByHand(t *testing.T) {
	b := newBed(t)
	pod := b.pod("web")
	port := b.bound(pod)
	b.attach(port, true)
	b.delete(port)
	b.eventually("another object is there", func() bool {
		again := b.portOf(pod)
		return again != nil && again.UID != port.UID && again.Status.Phase == v1.PortBound
	})
	again := b.portOf(pod)
	if again.Name != port.Name {
		t.Errorf("the pod has port %s, had %s", again.Name, port.Name)
	}
	if diff := cmp.Diff(port.Spec, again.Spec); diff != "" {
		t.Errorf("spec after and before (-before +after):\n%s", diff)
	}
	b.mentions("Event on the pod", b.eventOn("web", "KuryrPortDeleted"), "put back")
	b.eventOn(port.Name, "KuryrPortDeleted")
	time.Sleep(1500 * time.Millisecond) // time for the collector
	if b.cloud.Calls(memory.CreatePorts) != 1 || b.cloud.Calls(memory.DeletePort) != 0 {
		t.Errorf("%d ports made and %d deleted, want 1 and 0", b.cloud.Calls(memory.CreatePorts), b.cloud.Calls(memory.DeletePort))
	}
}

// TestPutBackWithItsType: the cloud does not know a configured type. So a restored KuryrPort has
// the type of its pool, also if the settings lead to another one meanwhile.
func TestPutBackWithItsType(t *testing.T) {
	for name, now := range map[string]string{"same settings": "midonet", "other settings": "tap"} {
		t.Run(name, func(t *testing.T) {
			b := idleBed(t)
			b.set(func(s *settings.Settings) { s.Pods.VIFType = "midonet" })
			b.start()
			pod := b.pod("web")
			port := b.bound(pod)
			b.attach(port, true)
			b.eventually("its pool says what it is for", func() bool { return len(b.pools()) == 1 })
			b.set(func(s *settings.Settings) { s.Pods.VIFType = now })
			b.delete(port)
			b.eventually("the object is put back", func() bool {
				again := b.portOf(pod)
				return again != nil && again.UID != port.UID
			})
			if diff := cmp.Diff(port.Spec, b.portOf(pod).Spec); diff != "" {
				t.Errorf("spec after and before (-before +after):\n%s", diff)
			}
		})
	}
}

// TestFreePortDeletedByHand: the port is deleted, and another is created.
func TestFreePortDeletedByHand(t *testing.T) {
	b := idleBed(t)
	b.set(func(s *settings.Settings) { s.Pools.Min, s.Pools.Max, s.Pools.Batch = 2, 5, 2 })
	b.start()
	pod := b.pod("web")
	b.bound(pod)
	b.settled(3)
	for _, port := range b.ports() {
		if port.Spec.PodRef == nil {
			b.delete(&port)
			b.eventually("it is gone from the cloud", func() bool { return !b.cloud.HasPort(port.Name) })
			break
		}
	}
	b.settled(3)
}

// TestWarmPool: with min free ports, the next pod gets one of these, and a port that was given back
// is used again.
func TestWarmPool(t *testing.T) {
	b := idleBed(t)
	b.set(func(s *settings.Settings) {
		s.Pools.Min, s.Pools.Max, s.Pools.Batch, s.Pools.TTL = 2, 3, 5, metav1.Duration{Duration: time.Hour}
	})
	b.start()
	pod := b.pod("a")
	b.bound(pod)
	b.settled(3)
	b.eventually("two are available", func() bool { return b.pools()[0].Status.Available == 2 })
	b.fail(memory.CreatePorts, sdn.ErrUnavailable)
	boundAt(t, b.bound(b.pod("b"))) // a port that was free
	b.delete(pod)
	b.eventually("the port of a is available again", func() bool { return b.pools()[0].Status.Available == 2 })
	b.settled(3)
	for _, port := range b.ports() {
		if at, is := port.Annotations[v1.BoundAnnotation]; is && port.Spec.PodRef == nil {
			t.Errorf("free KuryrPort %s is bound at %s", port.Name, at)
		}
	}
	if n := b.cloud.Calls(memory.UpdatePort); n != 0 {
		t.Errorf("%d updates of ports whose groups never changed, want 0", n)
	}
}

// TestEditedGroupsAreRepaired: edited groups are repaired in the object and in the cloud.
func TestEditedGroupsAreRepaired(t *testing.T) {
	b := newBed(t)
	port := b.bound(b.pod("web"))
	patch := client.RawPatch(types.MergePatchType, []byte(`{"spec":{"securityGroupIDs":["5f1c5aac-0000-4000-8000-00000000000b"]}}`))
	if err := b.client.Patch(t.Context(), port, patch, client.FieldOwner("somebody")); err != nil {
		t.Fatal(err)
	}
	b.eventually("the groups are repaired", func() bool {
		var got v1.KuryrPort
		if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(port), &got); err != nil {
			t.Fatal(err)
		}
		return cmp.Equal(got.Spec.SecurityGroupIDs, []string{group}) && cmp.Equal(got.Status.AppliedSecurityGroupIDs, []string{group})
	})
	b.eventually("and so they are in the cloud", func() bool {
		inCloud, err := b.cloud.Backend("cluster").Port(t.Context(), port.Name)
		return err == nil && cmp.Equal(inCloud.SecurityGroupIDs, []string{group})
	})
}

// TestCrashBetweenPortAndObject: the controller ends after the cloud has created the port and
// before the object is written. The next one serves the pod, and unused ports are collected.
func TestCrashBetweenPortAndObject(t *testing.T) {
	b := idleBed(t)
	made := make(chan struct{}, 10)
	b.after = func(ctx context.Context, call string, n int) error {
		if call == memory.CreatePorts && n == 1 {
			made <- struct{}{}
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	}
	b.start()
	pod := b.pod("web")
	<-made
	b.stop()
	if n := b.cloud.Ports(); n != 1 {
		t.Fatalf("%d ports in the cloud after the crash, want 1", n)
	}
	foreign := b.cloud.AddForeignPort()
	b.start()
	b.bound(pod)
	b.eventually("the orphan is collected", func() bool { return b.cloud.Ports() == 2 })
	b.never("somebody else's port is collected", func() bool { return !b.cloud.HasPort(foreign) || b.cloud.Ports() != 2 })
}

// TestLostAnswerIsLookedAfter: the ports of a request whose answer was lost are collected after the
// grace period, not after the interval.
func TestLostAnswerIsLookedAfter(t *testing.T) {
	b := idleBed(t)
	b.set(func(s *settings.Settings) {
		s.Orphans.Interval.Duration, s.Orphans.Grace.Duration = time.Hour, 500*time.Millisecond
	})
	b.after = func(_ context.Context, call string, n int) error {
		if call == memory.CreatePorts && n == 1 {
			return sdn.ErrUnavailable
		}
		return nil
	}
	b.start()
	port := b.bound(b.pod("web"))
	b.settled(1)
	if !b.cloud.HasPort(port.Name) || b.cloud.Calls(memory.CreatePorts) != 2 {
		t.Errorf("%d requests for ports, want 2, and the second one's port there", b.cloud.Calls(memory.CreatePorts))
	}
}

// TestPodsGoWhileNobodyLooks: pods that are deleted while no controller runs leave nothing.
func TestPodsGoWhileNobodyLooks(t *testing.T) {
	b := newBed(t)
	pods := []*corev1.Pod{b.pod("a"), b.pod("b"), b.pod("c")}
	for _, p := range pods {
		b.bound(p)
	}
	b.stop()
	b.delete(pods[0])
	b.delete(pods[1])
	b.start()
	b.settled(1)
	b.bound(pods[2])
}

// TestRestartAsksTheCloudNothing: a restart causes no requests to the cloud (invariant 7).
func TestRestartAsksTheCloudNothing(t *testing.T) {
	b := newBed(t)
	b.bound(b.pod("a"))
	b.set(func(s *settings.Settings) { s.Orphans.Interval.Duration, s.Orphans.Grace.Duration = 0, time.Hour })
	b.stop()
	calls := func() int {
		return b.cloud.Calls(memory.ListPorts) + b.cloud.Calls(memory.GetPort) + b.cloud.Calls(memory.UpdatePort) + b.cloud.Calls(memory.DeletePort)
	}
	before := calls()
	b.start()
	b.bound(b.pod("b"))
	if n := calls() - before; n != 0 {
		t.Errorf("%d calls besides making a port, want none", n)
	}
}

// TestNodeGoes: the ports of a deleted node are deleted once its pods are gone, plugged or not.
func TestNodeGoes(t *testing.T) {
	b := newBed(t)
	pod := b.pod("web")
	port := b.bound(pod)
	b.attach(port, true)
	b.delete(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}})
	b.never("the port of a living pod goes", func() bool { return b.cloud.Ports() != 1 })
	b.delete(pod)
	b.settled(0)
	b.eventually("its pool goes", func() bool { return len(b.pools()) == 0 })
}

// TestNonsenseOnAPod: an invalid annotation is overwritten, also one that names another pod's port.
func TestNonsenseOnAPod(t *testing.T) {
	b := newBed(t)
	victim := b.pod("victim")
	port := b.bound(victim)
	b.eventually("the victim is annotated", func() bool { return b.annotation(victim) != "" })
	for i, text := range []string{"nonsense", `{"eth0": 7}`, b.annotation(victim),
		`{"eth0": {"versioned_object.data": {"selfLink": "/apis/openstack.org/v1/kuryrports/` + b.cloud.AddForeignPort() + `"}}, "versioned_object.name": "KuryrPortCRD", "versioned_object.version": "1.0"}`,
	} {
		pod := b.pod(fmt.Sprint("pod-", i), func(p *corev1.Pod) { p.Annotations = map[string]string{v1.VIFAnnotation: text} })
		own := b.bound(pod)
		b.eventually("the annotation is put right", func() bool {
			got := b.annotation(pod)
			return got != text && len(got) > 0
		})
		b.mentions("annotation", b.annotation(pod), own.Name)
	}
	if got := b.portOf(victim); got == nil || got.Name != port.Name {
		t.Errorf("the victim's port is %v, want %s", got, port.Name)
	}
}

// TestPoolDeletedByHand: the pool is created again, and edited levels are reset.
func TestPoolDeletedByHand(t *testing.T) {
	b := newBed(t)
	b.bound(b.pod("web"))
	b.eventually("there is a pool", func() bool { return len(b.pools()) == 1 })
	old := b.pools()[0]
	b.delete(&old)
	b.eventually("the pool is there again", func() bool { return len(b.pools()) == 1 && b.pools()[0].UID != old.UID })
	p := b.pools()[0]
	if err := b.client.Patch(t.Context(), &p, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"batch":77}}`))); err != nil {
		t.Fatal(err)
	}
	b.eventually("its levels are as configured", func() bool { return b.pools()[0].Spec.Batch == 1 })
	b.settled(1)
}

// TestPortDebug: ports are named after their pods, free ports are not.
func TestPortDebug(t *testing.T) {
	b := idleBed(t)
	b.set(func(s *settings.Settings) { s.Pods.PortDebug = true; s.Pools.Min = 1 })
	b.start()
	pod := b.pod("web")
	port := b.bound(pod)
	b.settled(2)
	b.eventually("the port is renamed", func() bool { return b.cloud.Calls(memory.UpdatePort) > 0 })
	got, err := b.cloud.Backend("cluster").Port(t.Context(), port.Name)
	if err != nil || got.Name != "default/web" || got.DeviceID != string(pod.UID) {
		t.Errorf("name and device = %q, %q, %v", got.Name, got.DeviceID, err)
	}
}

// TestManyAtOnce: many pods come and go, some before they have a port. In the end each pod has one
// port, and no other port exists. Each port was created once.
func TestManyAtOnce(t *testing.T) {
	b := newBed(t)
	var wg sync.WaitGroup
	var mu sync.Mutex
	var stay []*corev1.Pod
	for i := range 60 {
		wg.Go(func() {
			pod := b.pod(fmt.Sprint("pod-", i))
			if i%3 == 0 {
				b.delete(pod)
				return
			}
			mu.Lock()
			defer mu.Unlock()
			stay = append(stay, pod)
		})
	}
	wg.Wait()
	b.settled(len(stay))
	owners := map[types.UID]string{}
	for _, port := range b.ports() {
		ref := port.Spec.PodRef
		if ref == nil || owners[ref.UID] != "" {
			t.Fatalf("port %s is of %v, as is %s", port.Name, ref, owners[ref.UID])
		}
		owners[ref.UID] = port.Name
	}
	for _, pod := range stay {
		if owners[pod.UID] == "" {
			t.Errorf("pod %s has no port", pod.Name)
		}
	}
}
