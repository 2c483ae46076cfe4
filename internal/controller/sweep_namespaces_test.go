// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/crashtest"
)

// TestNamespacesWhileWritesMeetTheirFate runs the life of a namespace with a network of its own. In
// one scenario its pod, its Service and the namespace come and go. In the other one its mode changes,
// with pods and without.
func TestNamespacesWhileWritesMeetTheirFate(t *testing.T) {
	s := namespacesSweep(t)
	t.Run("a namespace", func(t *testing.T) {
		s.Begin = func(w *crashtest.World) crashtest.Life { return newOneNamespace(w, newTenancy(w)).life() }
		s.Run(t, everyFate(crashtest.StoppedBefore, crashtest.StoppedTwice, crashtest.APIServerAway)...)
	})
	t.Run("its mode changes", func(t *testing.T) {
		s.Begin = func(w *crashtest.World) crashtest.Life { return newChangingNamespace(w, newTenancy(w)).life() }
		s.Run(t, everyFate(crashtest.StoppedAfter, crashtest.FailedAfter)...)
	})
}

// TestTenantsWhileWritesMeetTheirFate runs the lives of two namespaces of different projects. Nothing
// of one may ever be made in the project of the other one, nor may a request ask for that.
func TestTenantsWhileWritesMeetTheirFate(t *testing.T) {
	s := namespacesSweep(t)
	s.Begin = func(w *crashtest.World) crashtest.Life { return newTenants(w, newTenancy(w, red, blue)).life() }
	s.Run(t, everyFate(crashtest.StoppedAfter, crashtest.AnswerLost)...)
}

// namespacesSweep is a sweep without a scenario. A life takes seconds, so each fate hits one write of
// each scenario. KURYR_SWEEP=all disturbs each write.
func namespacesSweep(t *testing.T) crashtest.Sweep {
	s := sweepOf(t)
	s.Kinds = []client.ObjectList{&v1.KuryrLoadBalancerList{}, &v1.KuryrNetworkList{}}
	if os.Getenv("KURYR_SWEEP") != "all" {
		s.Sample = 1
	}
	return s
}

// everyFate returns all fates; only these ones, with -short.
func everyFate(few ...crashtest.Fate) []crashtest.Fate {
	if testing.Short() {
		return few
	}
	return []crashtest.Fate{
		crashtest.StoppedBefore, crashtest.StoppedAfter, crashtest.StoppedTwice, crashtest.Refused, crashtest.AnswerLost,
		crashtest.AnswerLostAndViewLate, crashtest.FailedAfter, crashtest.APIServerAway,
	}
}

// Namespaces of the scenarios. The world deletes them as Kubernetes does, so the next life may use
// their names.
const redNamespace, blueNamespace = "sweep-red", "sweep-blue"

// newOneNamespace is the life of a namespace, from its creation to its deletion.
func newOneNamespace(w *crashtest.World, cloud *tenancy) *namespacesLife {
	l := newNamespacesLife(w, cloud)
	l.steps = func() {
		l.come(redNamespace, v1.NetworkNamespace, nil)
		l.service(redNamespace, l.plug(l.schedule(redNamespace, "web")))
		w.Settled()
		l.leave(redNamespace)
		w.Settled()
	}
	l.limits = map[string]int{"network": 1, "subnet": 1, "port": 1, "loadbalancer": 1, "floatingip": 1}
	return l
}

// newChangingNamespace is the life of a namespace that changes its mode. The network is replaced
// once no pod has a port in it.
func newChangingNamespace(w *crashtest.World, cloud *tenancy) *namespacesLife {
	l := newNamespacesLife(w, cloud)
	l.steps = func() {
		l.come(redNamespace, v1.NetworkNamespace, nil)
		l.plug(l.schedule(redNamespace, "first"))
		w.Settled()
		l.choose(v1.NetworkFlat)
		w.Eventually("the change waits for the pod", func() bool { return l.planned() == v1.ReasonWaitsForPods })
		l.end(redNamespace, "first")
		l.want[redNamespace] = v1.NetworkShared // none, until there is another pod
		w.Settled()
		l.plug(l.schedule(redNamespace, "second"))
		l.want[redNamespace] = v1.NetworkFlat
		w.Settled()
		l.choose(v1.NetworkShared)
		w.Eventually("the change waits for the pod", func() bool { return l.planned() == v1.ReasonWaitsForPods })
		port := l.plug(l.schedule(redNamespace, "third"))
		if port.Spec.NetworkID != l.common {
			w.T.Errorf("the pod has a port in network %s, want the common one", port.Spec.NetworkID)
		}
		l.end(redNamespace, "second")
		l.want[redNamespace] = v1.NetworkShared
		w.Settled()
		l.end(redNamespace, "third")
		l.leave(redNamespace)
		w.Settled()
	}
	l.limits = map[string]int{"network": 2, "subnet": 2, "port": 3}
	return l
}

// newTenants are the lives of two namespaces: one names its project, a label puts the other one into
// its project. Their modes differ.
func newTenants(w *crashtest.World, cloud *tenancy) *namespacesLife {
	l := newNamespacesLife(w, cloud)
	cloud.home = map[string]string{redNamespace: cloud.projects[0].ProjectID, blueNamespace: cloud.projects[1].ProjectID}
	cloud.projects[1].NamespaceSelector = labelled("tenant", blueNamespace)
	l.settings.Projects = cloud.projects
	l.steps = func() {
		l.come(redNamespace, v1.NetworkNamespace, map[string]string{v1.ProjectAnnotation: cloud.home[redNamespace]})
		l.come(blueNamespace, v1.NetworkFlat, nil)
		for namespace, pod := range map[string]*corev1.Pod{redNamespace: l.schedule(redNamespace, "web"), blueNamespace: l.schedule(blueNamespace, "web")} {
			l.service(namespace, l.plug(pod))
		}
		w.Settled()
		l.leave(redNamespace, blueNamespace)
		w.Settled()
	}
	l.limits = map[string]int{"network": 2, "subnet": 2, "port": 2, "loadbalancer": 2, "floatingip": 2}
	return l
}
