// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// orphaning deletes a Service as `kubectl delete --cascade=orphan` does.
func (b *serviceBed) orphaning(svc *corev1.Service) {
	b.t.Helper()
	policy := metav1.DeletePropagationOrphan
	if err := b.client.Delete(b.t.Context(), svc, &client.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		b.t.Fatal(err)
	}
}

// garbageCollector does what Kubernetes' garbage collector does after that: it removes the owner
// references to the Service, and then its finalizer from the Service.
func (b *serviceBed) garbageCollector(svc *corev1.Service) {
	b.t.Helper()
	b.patch(b.balancerOf(svc.Name), map[string]any{"metadata": map[string]any{"ownerReferences": nil}})
	rest := slices.DeleteFunc(slices.Clone(b.now(svc).Finalizers), func(f string) bool { return f == metav1.FinalizerOrphanDependents })
	b.patch(svc, map[string]any{"metadata": map[string]any{"finalizers": rest}})
}

// TestCascadeOrphan: a load balancer serves the cluster IP of its Service, which another Service
// may get afterwards. So it does not outlive the Service, whether Kubernetes' garbage collector or
// Kuryr acts first.
func TestCascadeOrphan(t *testing.T) {
	for name, collectedFirst := range map[string]bool{"garbage collector first": true, "Kuryr first": false} {
		t.Run(name, func(t *testing.T) {
			b := newServiceBed(t)
			b.launch()
			svc := b.service("web", balanced)
			b.slice("web", "web-1", "10.1.0.5")
			b.applied(b.members("web", "10.1.0.5"), "203.0.113.7")
			b.eventually("the ingress is written", func() bool { return b.ingress(svc) != "" })
			b.quiet()
			deleting := func() bool { klb := b.balancerOf("web"); return klb != nil && !klb.DeletionTimestamp.IsZero() }
			if collectedFirst {
				b.stop()
				b.orphaning(svc)
				b.garbageCollector(svc)
				b.launch()
			} else {
				b.orphaning(svc)
				b.eventually("the KuryrLoadBalancer is being deleted", deleting)
				b.garbageCollector(svc)
			}
			b.never("the Service goes before its load balancer", func() bool { return b.now(svc) == nil })
			b.eventually("the KuryrLoadBalancer is being deleted", deleting)
			b.letGo("web")
			b.eventually("the Service is gone", func() bool { return b.now(svc) == nil })
			if b.balancerOf("web") != nil {
				t.Error("the KuryrLoadBalancer is there again")
			}
		})
	}
}

// TestCascadeOrphanInTheCloud: a Service that was deleted this way while no controller ran leaves
// nothing in the cloud.
func TestCascadeOrphanInTheCloud(t *testing.T) {
	b := newWholeBed(t)
	b.launch()
	svc := b.service("web", balanced)
	b.slice("web", "web-1", "10.1.0.5")
	b.eventually("it serves", func() bool { return b.tree("web") != nil && b.ingress(svc) != "" })
	b.quiet()
	b.stop()
	b.orphaning(svc)
	b.garbageCollector(svc)
	b.launch()
	b.eventually("the Service is gone", func() bool { return b.now(svc) == nil })
	if lb, public := b.tree("web"), b.publicOnes(); lb != nil || len(public) > 0 {
		t.Errorf("the Service is gone, and the cloud has load balancer %+v, floating IPs %v", lb, public)
	}
}

// TestBalancerOfNobody: a KuryrLoadBalancer that somebody has written by hand does not belong to
// the Service of the same name. It stays when the Service is deleted.
func TestBalancerOfNobody(t *testing.T) {
	b := newServiceBed(t)
	b.launch()
	svc := b.service("web", func(s *corev1.Service) { s.Finalizers = []string{v1.ServiceFinalizer} })
	b.create(&v1.KuryrLoadBalancer{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Finalizers: []string{v1.LoadBalancerFinalizer}},
		Spec:       v1.KuryrLoadBalancerSpec{VIPs: []v1.VIPAddress{{IP: "10.96.0.77", SubnetID: vipSubnet}}},
	})
	b.delete(svc)
	b.eventually("the Service is gone", func() bool { return b.now(svc) == nil })
	if klb := b.balancerOf("web"); klb == nil || !klb.DeletionTimestamp.IsZero() {
		t.Errorf("KuryrLoadBalancer %+v, want it to stay", klb)
	}
}
