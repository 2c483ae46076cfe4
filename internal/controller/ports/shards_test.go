// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
)

func TestMemoryOfLostPortsIsDropped(t *testing.T) {
	m := newPortMemory()
	r := &Reconciler{Options: Options{Settings: settings.NewLive(settings.Settings{})}, memory: m, checks: kube.NewSignal()}
	here, there := portNamed("here"), portNamed("there")
	there.Spec.NodeName, here.Generation = "other", 1
	m.awaitActive(here, "")
	m.awaitActive(there, "")
	r.awaitCheck(here)
	m.setGone("here", true)
	m.setGone("unseen", true)
	m.lost(func(k kube.Key) bool { return k == kube.OnNode("node") })
	if got := m.of("here"); got != (portNote{}) {
		t.Errorf("known of a port of a lost node: %+v", got)
	}
	if m.of("there").active.since.IsZero() || !m.of("unseen").gone {
		t.Error("what is known of ports of other nodes was dropped")
	}
	m.forget("there")
	m.setGone("unseen", false)
	if n := m.ports.Size(); n != 0 {
		t.Errorf("something is kept of %d ports of which nothing is known", n)
	}
}

type freed struct{ of []pool.Ref }

func (f *freed) Freed(r pool.Ref) { f.of = append(f.of, r) }

// The room of a port that another process has deleted may serve a pod here. The own reconciler reports
// the room of own ports, before the object is gone. An object that was deleted alone frees nothing.
func TestRoomOfOthersPorts(t *testing.T) {
	gate, room := shards.NewGate(nil), &freed{}
	gate.Open(t.Context(), shard.Set{}.With(shard.Bucket("node", "own")), false)
	r := &Reconciler{Options: Options{Shards: gate, Room: room}}
	for _, port := range []*v1.KuryrPort{
		{Spec: v1.KuryrPortSpec{NodeName: "own", Pool: "a"}, Status: v1.KuryrPortStatus{Phase: v1.PortDeleting}},
		{Spec: v1.KuryrPortSpec{NodeName: "other", Pool: "b"}, Status: v1.KuryrPortStatus{Phase: v1.PortDeleting}},
		{Spec: v1.KuryrPortSpec{NodeName: "other", Pool: "c"}, Status: v1.KuryrPortStatus{Phase: v1.PortBound}, ObjectMeta: metav1.ObjectMeta{Name: "c"}},
	} {
		if !r.deleted(event.DeleteEvent{Object: port}) {
			t.Error("the reconciler does not forget a port")
		}
	}
	if len(room.of) != 1 || room.of[0] != (pool.Ref{Pool: "b", Node: "other"}) {
		t.Errorf("freed %v, want that of the other process' port", room.of)
	}
}
