// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package sweep

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Where the pods of a scenario are, unless it says otherwise.
const (
	Node      = "node-1"
	namespace = "default"
)

// Create makes an object.
func (w *World) Create(o client.Object) {
	w.T.Helper()
	if err := w.Client.Create(w.ctx(), o); err != nil {
		w.T.Fatal(err)
	}
	w.Say("made %T %s", o, o.GetName())
}

// Delete deletes an object, a pod without grace.
func (w *World) Delete(o client.Object) {
	w.T.Helper()
	w.Say("deleting %T %s", o, o.GetName())
	if err := w.Client.Delete(w.ctx(), o, client.GracePeriodSeconds(0)); err != nil {
		w.T.Fatal(err)
	}
}

// Pod makes a pod that is scheduled to Node.
func (w *World) Pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	w.T.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: Node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for _, f := range change {
		f(pod)
	}
	w.Create(pod)
	return pod
}

// Finish lets a pod's containers end.
func (w *World) Finish(pod *corev1.Pod) {
	w.T.Helper()
	w.Say("pod %s finishes", pod.Name)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`))
	if err := w.Client.Status().Patch(w.ctx(), pod, patch); err != nil {
		w.T.Fatal(err)
	}
}

// Pods returns all pods.
func (w *World) Pods() []corev1.Pod {
	w.T.Helper()
	var list corev1.PodList
	if err := w.Client.List(w.ctx(), &list); err != nil {
		w.T.Fatal(err)
	}
	return list.Items
}

// Ports returns all KuryrPorts.
func (w *World) Ports() []v1.KuryrPort {
	w.T.Helper()
	var list v1.KuryrPortList
	if err := w.Client.List(w.ctx(), &list); err != nil {
		w.T.Fatal(err)
	}
	return list.Items
}

// PortOf returns the KuryrPort of a pod, nil if it has none.
func (w *World) PortOf(pod *corev1.Pod) *v1.KuryrPort {
	w.T.Helper()
	for _, port := range w.Ports() {
		if port.Spec.PodRef != nil && port.Spec.PodRef.UID == pod.UID && port.DeletionTimestamp.IsZero() {
			return &port
		}
	}
	return nil
}

// Bound waits until a pod has its port, as the status says, too.
func (w *World) Bound(pod *corev1.Pod) *v1.KuryrPort {
	w.T.Helper()
	var port *v1.KuryrPort
	w.Eventually("pod "+pod.Name+" has a bound KuryrPort", func() bool {
		port = w.PortOf(pod)
		return port != nil && port.Status.Phase == v1.PortBound
	})
	return port
}

// Plug says, as the node's daemon does, that a port is plugged.
func (w *World) Plug(port *v1.KuryrPort) {
	w.T.Helper()
	w.mu.Lock()
	w.plugged[port.Name] = fmt.Sprint(port.Spec.PodRef.Name)
	w.mu.Unlock()
	w.attach(port, map[string]any{"attachment": map[string]any{
		"containerID": "c", "interface": "eth0", "since": time.Now().UTC().Format(time.RFC3339),
	}})
}

// Unplug says that it is not any more.
func (w *World) Unplug(port *v1.KuryrPort) {
	w.T.Helper()
	w.mu.Lock()
	delete(w.plugged, port.Name)
	w.mu.Unlock()
	w.attach(port, map[string]any{})
}

func (w *World) attach(port *v1.KuryrPort, status map[string]any) {
	w.T.Helper()
	w.Say("port %s: the daemon says %v", port.Name, status)
	u := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	u.SetGroupVersionKind(v1.GroupVersion.WithKind("KuryrPort"))
	u.SetName(port.Name)
	err := w.Client.Status().Apply(w.ctx(), client.ApplyConfigurationFromUnstructured(u), client.FieldOwner("kuryr-daemon"), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		w.T.Fatal(err)
	}
}
