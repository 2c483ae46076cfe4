// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/apitest"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/crashtest"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// TestPodsWhileWritesMeetTheirFate runs the lives of a few pods again and again. Each time another
// write of the controller, to the API server or to the cloud, meets its fate. The memory backend
// runs only some of them: these distinguish a fault of the controller from one of the Neutron
// backend.
func TestPodsWhileWritesMeetTheirFate(t *testing.T) {
	s := sweepOf(t)
	t.Run("on OpenStack", func(t *testing.T) {
		s.Begin = func(w *crashtest.World) crashtest.Life { return newPodsLife(w, newOpenstack).life() }
		s.Run(t, crashtest.StoppedBefore, crashtest.StoppedAfter, crashtest.StoppedTwice, crashtest.Refused, crashtest.AnswerLost, crashtest.AnswerLostAndViewLate)
	})
	t.Run("in memory", func(t *testing.T) {
		s.Begin = func(w *crashtest.World) crashtest.Life { return newPodsLife(w, newInMemory).life() }
		s.Every = 9
		s.Run(t, crashtest.StoppedBefore, crashtest.StoppedAfter)
	})
}

// sweepOf returns a sweep without a scenario. It disturbs every third write, with -short every ninth. It disturbs each with
// KURYR_SWEEP=all, and every 18th with KURYR_SWEEP=few.
func sweepOf(t *testing.T) crashtest.Sweep {
	t.Helper()
	s := undisturbed(t)
	s.Every = 3
	if testing.Short() {
		s.Every = 9
	}
	switch os.Getenv("KURYR_SWEEP") {
	case "all":
		s.Every = 1
	case "few":
		s.Every = 18
	}
	return s
}

// undisturbed returns a sweep without a scenario, which disturbs nothing, on all API servers that the tests share: most
// of a life is waiting.
func undisturbed(t *testing.T) crashtest.Sweep {
	t.Helper()
	apitest.Need(t)
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	return crashtest.Sweep{Clusters: everyLane(t), Scheme: scheme}
}

// podsLife is the life of a few pods in one world.
type podsLife struct {
	w        *crashtest.World
	cloud    swept
	settings settings.Settings
	live     *settings.Live // of the running process

	newClient client.NewClientFunc // of a process; nil: the usual one
}

func newPodsLife(w *crashtest.World, newCloud func(*crashtest.World) swept) *podsLife {
	l := &podsLife{w: w, cloud: newCloud(w)}
	l.settings = settings.Settings{
		Pods:  l.cloud.pods(),
		Pools: config.Pools{Batch: 1, Min: 1, Max: 2, TTL: metav1.Duration{Duration: time.Hour}},
	}
	l.settings.Orphans = orphans(w, hurriedOrphans)
	l.live = settings.NewLive(l.settings)
	w.Create(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: w.Node}})
	return l
}

// orphans returns how the collector looks in a life.
func orphans(w *crashtest.World, hurried config.Orphans) config.Orphans {
	switch {
	case w.Undisturbed(): // the collector must not repair anything
		return noLooks
	case w.Pauses(): // the grace must be longer than any request takes, late ones included
		hurried.Grace.Duration = 9 * time.Second
	}
	return hurried
}

// noLooks turns the comparisons of the collector off.
var noLooks = config.Orphans{Grace: metav1.Duration{Duration: time.Hour}}

var hurriedOrphans = config.Orphans{
	Interval: metav1.Duration{Duration: 50 * time.Millisecond}, Grace: metav1.Duration{Duration: 100 * time.Millisecond},
}

func (l *podsLife) life() crashtest.Life {
	// Three ports are of the steps: one for each pod and one kept. One more is kept for the pod of
	// restarting. A stopped process may have requested two: a pod's and one to keep.
	limit := 4 + 2*max(1, l.w.Stopped())
	return crashtest.Life{
		Cloud: l.cloud, Cluster: l.cloud.mark(),
		Start: l.start, Steps: l.steps, Restarting: l.restarting, Uneven: l.uneven,
		Limits: map[string]int{"port": limit},
	}
}

// start runs a controller.
func (l *podsLife) start(ctx context.Context, cluster *rest.Config) error {
	p := newPart(ctx, cluster, l.w, l.cloud, l.newClient)
	return p.run(ctx, controller.Options{
		Ports: p.backend, Visibility: p.backend, Capacity: p.backend, Hosts: p.backend, Settings: l.live, Backoff: hurried,
		PoolIdle: 2 * time.Second, StatusGap: 50 * time.Millisecond,
	})
}

func (l *podsLife) set(change func(*settings.Settings)) {
	change(&l.settings)
	l.live.Set(l.settings)
}

// steps runs two pods. One finishes after its KuryrPort was deleted by hand. The other has one of
// the kept ports and is deleted.
func (l *podsLife) steps() {
	w := l.w
	first := w.Pod("first")
	port := w.Bound(first)
	w.Plug(port)
	w.Settled()
	second := w.Pod("second")
	other := w.Bound(second)
	w.Plug(other)
	w.Delete(port)
	w.Eventually("the KuryrPort is put back", func() bool {
		again := w.PortOf(first)
		return again != nil && again.UID != port.UID && again.Status.Phase == v1.PortBound
	})
	w.Plug(port) // as its daemon reports again for the new object
	w.Finish(first)
	w.Unplug(port)
	w.Settled()
	if got := w.PortOf(second); got == nil || got.Name != other.Name {
		w.T.Errorf("the second pod has KuryrPort %v, want %s as before", got, other.Name)
	}
	w.Delete(second)
	w.Unplug(other)
	w.Settled()
	l.set(func(s *settings.Settings) { s.Pools.Min, s.Pools.TTL.Duration = 0, 0 })
	w.Settled()
}

// uneven returns the faults in the number of free ports.
func (l *podsLife) uneven() []string {
	free := 0
	for _, port := range l.w.Ports() {
		if port.Spec.PodRef == nil {
			free++
		}
	}
	most := int(l.settings.Pools.Max)
	if l.settings.Pools.TTL.Duration == 0 {
		most = int(l.settings.Pools.Min)
	}
	if free < int(l.settings.Pools.Min) || free > most {
		return []string{fmt.Sprintf("%d ports are free, want %d to %d", free, l.settings.Pools.Min, most)}
	}
	return nil
}

// restarting creates a pod if a port is free for it at once. It waits until as many pods are served
// as there are such ports. Only then may the controller list the cloud's resources.
func (l *podsLife) restarting() (served, then func()) {
	ready := 0
	for _, port := range l.w.Ports() {
		if port.Status.Phase == v1.PortAvailable && port.Spec.PodRef == nil && port.DeletionTimestamp.IsZero() {
			ready++
		}
	}
	l.live = settings.NewLive(l.settings)
	if ready == 0 {
		return nil, nil
	}
	patient := l.settings
	patient.Orphans = noLooks
	l.live = settings.NewLive(patient)
	probe := l.w.Pod("probe")
	waiting := l.waiting()
	served = func() {
		l.w.Eventually("pods have the ports that were free", func() bool {
			n := 0
			for _, pod := range waiting {
				if port := l.w.PortOf(pod); port != nil && port.Status.Phase == v1.PortBound {
					n++
				}
			}
			return n >= min(ready, len(waiting))
		})
	}
	return served, func() {
		l.w.Delete(probe)
		l.live.Set(l.settings)
	}
}

// waiting returns the pods that any port suits: they never had one.
func (l *podsLife) waiting() (pods []*corev1.Pod) {
	held := map[types.UID]bool{}
	for _, port := range l.w.Ports() {
		if port.Spec.PodRef != nil {
			held[port.Spec.PodRef.UID] = true
		}
	}
	for _, pod := range l.w.Pods() {
		if !held[pod.UID] && pod.Annotations[v1.VIFAnnotation] == "" && !pool.Finished(pod) {
			pods = append(pods, pod)
		}
	}
	return pods
}
