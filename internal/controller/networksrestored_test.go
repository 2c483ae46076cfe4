// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

// A KuryrNetwork that is restored from a backup after the configuration has left all namespaces in
// the common network is deleted, and so is what the cloud has for it. Nothing waits for its finalizer.
func TestAKuryrNetworkThatIsRestored(t *testing.T) {
	for name, deleted := range map[string]bool{"in a namespace that lives": false, "in one that is deleted": true} {
		t.Run(name, func(t *testing.T) {
			b := newNetBed(t, "flat")
			b.start()
			b.makeNamespace(b.namespace, nil)
			pod := b.waiting(b.namespace, "first")
			backup := b.ready(b.namespace)
			b.delete(pod)
			b.set(func(s *settings.Settings) { s.Networks.Mode = "" })
			b.eventually("the network is given up", func() bool { return b.kn(b.namespace) == nil && len(b.owned()) == 0 })
			b.stop()
			b.settings = settings.NewLive(b.current) // as a process that never wanted the feature
			b.start()
			second := b.pod("second", inNamespace(b.namespace))
			if port := b.bound(second); port.Spec.NetworkID != network {
				t.Errorf("a pod has a port in network %s, want the common one, %s", port.Spec.NetworkID, network)
			}
			b.delete(second)
			status := backup.Status
			backup.ResourceVersion, backup.UID, backup.ManagedFields = "", "", nil
			b.create(backup)
			backup.Status = status
			if err := b.client.Status().Update(t.Context(), backup); err != nil {
				t.Fatal(err)
			}
			if deleted {
				b.delete(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: b.namespace}})
				b.deleteNetworkOf(b.namespace)
			}
			b.eventuallyIn(15*time.Second, "the KuryrNetwork is deleted", func() bool { return b.kn(b.namespace) == nil })
			if all := b.owned(); len(all) != 0 {
				t.Errorf("the cloud has %+v, want no network", all)
			}
		})
	}
}
