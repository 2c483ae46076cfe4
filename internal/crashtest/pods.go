// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// namespace is the namespace of a scenario's pods.
const namespace = "default"

// Create creates an object.
func (w *World) Create(o client.Object) {
	w.T.Helper()
	if err := w.Client.Create(w.ctx(), o); err != nil {
		w.T.Fatal(err)
	}
	w.Say("made %T %s", o, o.GetName())
	w.sees(o, false)
}

// Delete deletes an object, a pod without a grace period.
func (w *World) Delete(o client.Object) {
	w.T.Helper()
	w.Say("deleting %T %s", o, o.GetName())
	if err := w.Client.Delete(w.ctx(), o, client.GracePeriodSeconds(0)); err != nil {
		w.T.Fatal(err)
	}
	w.sees(o, true)
}

// Pod creates a pod that is scheduled to w.Node.
func (w *World) Pod(name string, change ...func(*corev1.Pod)) *corev1.Pod {
	w.T.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec:       corev1.PodSpec{NodeName: w.Node, Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	for _, f := range change {
		f(pod)
	}
	w.Create(pod)
	return pod
}

// Finish ends the containers of a pod.
func (w *World) Finish(pod *corev1.Pod) {
	w.T.Helper()
	w.Say("pod %s finishes", pod.Name)
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`))
	if err := w.Client.Status().Patch(w.ctx(), pod, patch); err != nil {
		w.T.Fatal(err)
	}
	w.sees(pod, false)
}

// Pods returns all pods, sorted by name. It shows every change by the world. Changes by the
// controller may appear a moment later. Callers must not change the pods.
func (w *World) Pods() (pods []*corev1.Pod) {
	for _, o := range w.history.current() {
		if pod, ok := o.(*corev1.Pod); ok {
			pods = append(pods, pod)
		}
	}
	return pods
}

// Ports returns all KuryrPorts, as Pods does.
func (w *World) Ports() (ports []*v1.KuryrPort) {
	for _, o := range w.history.current() {
		if port, ok := o.(*v1.KuryrPort); ok {
			ports = append(ports, port)
		}
	}
	return ports
}

// sees waits until the history shows the world's change of o. It returns at once for kinds
// without a history.
func (w *World) sees(o client.Object, deleted bool) {
	w.T.Helper()
	switch o.(type) {
	case *corev1.Pod, *v1.KuryrPort:
	default:
		return
	}
	for deadline := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
		seen, err := w.history.shows(o, deleted)
		if err != nil {
			w.T.Fatalf("keeping the history: %v", err)
		}
		if seen {
			return
		}
		if time.Now().After(deadline) {
			w.T.Fatalf("%T %s is not seen to have changed in %s", o, o.GetName(), patience)
		}
	}
}

// PortOf returns the KuryrPort of a pod, nil if it has none.
func (w *World) PortOf(pod *corev1.Pod) *v1.KuryrPort {
	w.T.Helper()
	for _, port := range w.Ports() {
		if port.Spec.PodRef != nil && port.Spec.PodRef.UID == pod.UID && port.DeletionTimestamp.IsZero() {
			return port.DeepCopy()
		}
	}
	return nil
}

// Bound waits until a pod has a KuryrPort whose status is Bound.
func (w *World) Bound(pod *corev1.Pod) *v1.KuryrPort {
	w.T.Helper()
	var port *v1.KuryrPort
	w.Eventually("pod "+pod.Name+" has a bound KuryrPort", func() bool {
		port = w.PortOf(pod)
		return port != nil && port.Status.Phase == v1.PortBound
	})
	return port
}

// Plug reports a port as plugged, as the node's daemon does.
func (w *World) Plug(port *v1.KuryrPort) {
	w.T.Helper()
	w.mu.Lock()
	w.plugged[port.Name] = fmt.Sprint(port.Spec.PodRef.Name)
	w.mu.Unlock()
	w.attach(port, `{"containerID":"c","interface":"eth0","since":"`+time.Now().UTC().Format(time.RFC3339)+`"}`)
}

// Unplug reports a port as no longer plugged.
func (w *World) Unplug(port *v1.KuryrPort) {
	w.T.Helper()
	w.mu.Lock()
	delete(w.plugged, port.Name)
	w.mu.Unlock()
	w.attach(port, "null")
}

func (w *World) attach(port *v1.KuryrPort, at string) {
	w.T.Helper()
	w.Say("port %s: the daemon says %s", port.Name, at)
	u := &v1.KuryrPort{ObjectMeta: metav1.ObjectMeta{Name: port.Name}}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"status":{"attachment":`+at+`}}`))
	err := w.Client.Status().Patch(w.ctx(), u, patch, client.FieldOwner("kuryr-daemon"))
	if client.IgnoreNotFound(err) != nil {
		w.T.Fatal(err)
	}
	if err == nil {
		again := port.DeepCopy()
		again.UID, again.ResourceVersion = u.GetUID(), u.GetResourceVersion()
		w.sees(again, false)
	}
}
