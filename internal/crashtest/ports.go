// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// portRules hold for ports and pods at all times, in every scenario.
var portRules = []Rule{portStays, onePortAPod, onePodAnAddress}

// pausedRules hold instead if a controller is paused. It gives a pod a port, and that is executed after its successor
// has given the pod another one: no version can prevent that. The second one goes back.
var pausedRules = []Rule{secondPortReturns, onePodAnAddress}

func (w *World) portRules() []Rule {
	if w.Pauses() {
		return pausedRules
	}
	return portRules
}

// secondPortReturns: as portStays, but a pod that has another port may lose one that is not plugged.
func secondPortReturns(s State, old, now client.Object) []string {
	if before, is := old.(*v1.KuryrPort); is && before.Status.Attachment == nil && before.Spec.PodRef != nil && s.holds(before.Spec.PodRef.UID, before.Name) {
		return nil
	}
	return portStays(s, old, now)
}

// holds reports whether a pod has a KuryrPort besides one.
func (s State) holds(uid types.UID, besides string) bool {
	return slices.ContainsFunc(s.ports(), func(p *v1.KuryrPort) bool {
		return p.Name != besides && p.Spec.PodRef != nil && p.Spec.PodRef.UID == uid && p.DeletionTimestamp.IsZero()
	})
}

// portStays: a KuryrPort leaves its pod only after the pod is deleted or finished, and the port
// is unplugged.
func portStays(s State, old, now client.Object) (faults []string) {
	before, ok := old.(*v1.KuryrPort)
	after, _ := now.(*v1.KuryrPort)
	if !ok || after == nil || before.Spec.PodRef == nil {
		return nil
	}
	if after.Spec.PodRef != nil && after.Spec.PodRef.UID == before.Spec.PodRef.UID {
		return nil
	}
	if s.lives(before.Spec.PodRef.UID) {
		faults = append(faults, fmt.Sprintf("port %s was taken from pod %s, which lives", after.Name, before.Spec.PodRef.Name))
	}
	if before.Status.Attachment != nil {
		faults = append(faults, fmt.Sprintf("port %s was taken from pod %s while it was plugged", after.Name, before.Spec.PodRef.Name))
	}
	return faults
}

// onePortAPod: no living pod has two KuryrPorts.
func onePortAPod(s State, _, _ client.Object) (faults []string) {
	held := map[types.UID]string{}
	for _, port := range s.ports() {
		ref := port.Spec.PodRef
		if ref == nil || !port.DeletionTimestamp.IsZero() || !s.lives(ref.UID) {
			continue
		}
		if other := held[ref.UID]; other != "" {
			faults = append(faults, fmt.Sprintf("pod %s has two ports: %s and %s", ref.Name, other, port.Name))
		}
		held[ref.UID] = port.Name
	}
	return faults
}

// onePodAnAddress: no two KuryrPorts in use share an address.
func onePodAnAddress(s State, _, _ client.Object) (faults []string) {
	held := map[v1.Address]string{}
	for _, port := range s.ports() {
		if ref := port.Spec.PodRef; port.Status.Attachment == nil && (ref == nil || !s.lives(ref.UID)) {
			continue
		}
		for _, a := range port.Spec.VIF.Addresses {
			if other := held[a]; other != "" {
				faults = append(faults, fmt.Sprintf("address %s is that of two ports in use: %s and %s", a.IP, other, port.Name))
			}
			held[a] = port.Name
		}
	}
	return faults
}

// lives reports whether the pod exists and has not finished.
func (s State) lives(uid types.UID) bool {
	pod, ok := s[uid].(*corev1.Pod)
	return ok && !finished(pod)
}

// ports returns the KuryrPorts, sorted by name.
func (s State) ports() (all []*v1.KuryrPort) {
	for _, o := range s {
		if port, ok := o.(*v1.KuryrPort); ok {
			all = append(all, port)
		}
	}
	slices.SortFunc(all, func(a, b *v1.KuryrPort) int { return strings.Compare(a.Name, b.Name) })
	return all
}

func finished(pod *corev1.Pod) bool {
	return pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
}

// portInUse returns why a port must not be deleted now, empty if it may be.
func (w *World) portInUse(id string) string {
	w.mu.Lock()
	holder := w.plugged[id]
	w.mu.Unlock()
	if holder != "" {
		return fmt.Sprintf("it was plugged, for pod %s", holder)
	}
	ctx := context.WithoutCancel(w.T.Context())
	var port v1.KuryrPort
	err := w.Client.Get(ctx, client.ObjectKey{Name: id}, &port)
	if apierrors.IsNotFound(err) && w.history.knew(id) {
		return "its KuryrPort was gone already, whose finalizer should have waited for it"
	}
	if apierrors.IsNotFound(err) || err == nil && port.Spec.PodRef == nil {
		return ""
	}
	if err != nil {
		return fmt.Sprintf("it could not be told whether it is used: %v", err)
	}
	ref := port.Spec.PodRef
	var pod corev1.Pod
	err = w.Client.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &pod)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Sprintf("it could not be told whether its pod lives: %v", err)
	}
	second := w.Pauses() && slices.ContainsFunc(w.Ports(), func(p *v1.KuryrPort) bool {
		return p.Name != id && p.Spec.PodRef != nil && p.Spec.PodRef.UID == ref.UID
	})
	if err == nil && pod.UID == ref.UID && !finished(&pod) && !second {
		return fmt.Sprintf("pod %s has it", pod.Name)
	}
	return ""
}

// unevenPorts returns what is not at rest: ports without a KuryrPort, KuryrPorts without a port,
// pods without a port, and ports that are neither Bound nor Available.
func (w *World) unevenPorts() (uneven []string) {
	inCloud := w.Ours("port")
	held := map[types.UID]bool{}
	for _, port := range w.Ports() {
		if !inCloud[port.Name] {
			uneven = append(uneven, "KuryrPort "+port.Name+" has no port")
		}
		delete(inCloud, port.Name)
		if p := port.Status.Phase; !port.DeletionTimestamp.IsZero() || p != v1.PortBound && p != v1.PortAvailable {
			uneven = append(uneven, fmt.Sprintf("KuryrPort %s is %s", port.Name, p))
		}
		if (port.Spec.PodRef != nil) != (port.Status.Phase == v1.PortBound) {
			uneven = append(uneven, fmt.Sprintf("KuryrPort %s is %s and of %v", port.Name, port.Status.Phase, port.Spec.PodRef))
		}
		if port.Spec.PodRef != nil {
			held[port.Spec.PodRef.UID] = true
		}
	}
	for id := range inCloud {
		uneven = append(uneven, "port "+id+" has no KuryrPort")
	}
	for _, pod := range w.Pods() {
		wants := pod.Spec.NodeName != "" && !finished(pod)
		if wants != held[pod.UID] {
			uneven = append(uneven, fmt.Sprintf("pod %s wants a port: %t, has one: %t", pod.Name, wants, held[pod.UID]))
		}
		delete(held, pod.UID)
	}
	for uid := range held {
		uneven = append(uneven, fmt.Sprintf("pod %s, which is gone, has a port", uid))
	}
	return uneven
}
