// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	corev1 "k8s.io/api/core/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// OwnerRequest returns the request for the object that a cloud resource exists for.
func OwnerRequest(o sdn.Owner) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKey{Namespace: o.Namespace, Name: o.Name}}
}

// RequestOf returns the request for an object.
func RequestOf(o client.Object) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

// Reference names an object in an Event. It leaves out the resource version,
// which would make each Event of an object that changes a new one.
func Reference(obj client.Object, kind string) *corev1.ObjectReference {
	version := v1.GroupVersion.String()
	if kind == "Pod" || kind == "Service" {
		version = "v1"
	}
	return &corev1.ObjectReference{
		APIVersion: version, Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
	}
}

// PodOf returns a pod with the identity that a KuryrPort names, to name it in an Event.
func PodOf(ref *v1.PodReference) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}}
}

// SetCondition sets one condition in list; its transition time changes with its status
// only. now is kept to the second.
func SetCondition(list *[]metav1.Condition, kind string, is bool, reason, message string, generation int64, now time.Time) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(list, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: message, ObservedGeneration: generation,
		LastTransitionTime: metav1.Time{Time: now.Truncate(time.Second)},
	})
}

// PodKey is where a pod is found.
func PodKey(ref *v1.PodReference) types.NamespacedName {
	return types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
}

// Retry is what a failed write means for the queue. Somebody else's write in
// between is nothing to speak of: its event is on its way.
func Retry(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	return ctrl.Result{}, err
}

// Lost makes nothing of an error that says that the object is gone: the event
// of that is on its way.
func Lost(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// Label mirrors a phase in the label of a KuryrPort that is not written yet.
func Label(port *v1.KuryrPort, phase v1.PortPhase) {
	if port.Labels == nil {
		port.Labels = map[string]string{}
	}
	port.Labels[v1.PortStatusLabel] = string(phase)
}

// NoKuryrPort returns an error unless the API server says that there is no
// KuryrPort of that name. To be asked before a port is deleted that has none as
// far as is known: the cache may be late, and a write whose answer was lost done.
func NoKuryrPort(ctx context.Context, live client.Reader, name string) error {
	err := live.Get(ctx, client.ObjectKey{Name: name}, &v1.KuryrPort{})
	if err == nil {
		return fmt.Errorf("KuryrPort %s exists", name)
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("looking whether KuryrPort %s exists: %w", name, err)
	}
	return nil
}

// Field owners, as the client takes them: see package v1.
const (
	OwnerPool       = client.FieldOwner(v1.FieldOwnerPool)
	OwnerPort       = client.FieldOwner(v1.FieldOwnerPort)
	OwnerAnnotation = client.FieldOwner(v1.FieldOwnerAnnotation)
	OwnerService    = client.FieldOwner(v1.FieldOwnerService)
	OwnerBalancer   = client.FieldOwner(v1.FieldOwnerLoadBalancer)
)

// PatchMetadata changes the metadata of an object, if nobody else has meanwhile; of
// one that is gone nothing is written. It takes an object that has nothing but its
// metadata, which are then as the API server has them.
func PatchMetadata(ctx context.Context, c client.Client, obj client.Object, kind string, owner client.FieldOwner, change func(client.Object)) error {
	old := obj.DeepCopyObject().(client.Object) // of the same type
	change(obj)
	err := c.Patch(ctx, obj, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), owner)
	if err = Lost(err); err != nil {
		return fmt.Errorf("writing metadata of %s %s: %w", kind, strings.TrimPrefix(client.ObjectKeyFromObject(old).String(), "/"), err)
	}
	return nil
}

// ApplyStatus writes status as all that owner says of obj's status, by
// server-side apply, and returns the object's new resource version. It does not
// make the object: one that is gone stays gone.
func ApplyStatus(ctx context.Context, c client.Client, obj client.Object, kind string, status any, owner client.FieldOwner) (string, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return "", fmt.Errorf("writing status of %s %s: %w", kind, obj.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	u.SetGroupVersionKind(v1.GroupVersion.WithKind(kind))
	u.SetNamespace(obj.GetNamespace())
	u.SetName(obj.GetName())
	u.SetUID(obj.GetUID())
	err = c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), owner, client.ForceOwnership)
	if err = Lost(err); err != nil {
		return "", fmt.Errorf("writing status of %s %s: %w", kind, obj.GetName(), err)
	}
	return u.GetResourceVersion(), nil
}

// Annotation returns the annotation that names a pod's KuryrPorts; "" if there is none.
func Annotation(o client.Object) string { return o.GetAnnotations()[v1.VIFAnnotation] }

// Annotated reports whether a pod names KuryrPorts.
func Annotated(o client.Object) bool { return Annotation(o) != "" }

// NodeJoined reports whether a node is ready and takes pods.
func NodeJoined(node *corev1.Node) bool {
	return node.DeletionTimestamp.IsZero() && !node.Spec.Unschedulable &&
		slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
}

// usualPods is how many pods a kubelet runs that was not told.
const usualPods = 110

// NodeTakes returns how many pods the node's kubelet can run, and why there are not more.
// A node that is not ready may well run pods: kubelet does so while a CSI driver is
// missing, say, and a new node is not ready until its network plugin is there. One whose
// kubelet is not heard of, which the control plane says, runs none that it does not know.
func NodeTakes(node *corev1.Node) (n int, why string) {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
			return 0, "its kubelet is not heard of (Ready is Unknown)"
		}
	}
	n = usualPods
	if allocatable, ok := node.Status.Allocatable[corev1.ResourcePods]; ok {
		n = int(allocatable.Value())
	}
	return n, fmt.Sprintf("it runs %d pods at most", n)
}

// NodeAddresses returns the node's addresses in the machines' network, in its order.
func NodeAddresses(node *corev1.Node) (out []string) {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			out = append(out, a.Address)
		}
	}
	return out
}

// NodeServer returns the ID of the OpenStack server that the node is, as its providerID
// names it: openstack:///ID, or openstack://REGION/ID. It is "" where nobody has written
// one, or it is of another cloud's kind.
func NodeServer(node *corev1.Node) string {
	rest, ok := strings.CutPrefix(node.Spec.ProviderID, "openstack://")
	if !ok {
		return ""
	}
	return strings.ToLower(rest[strings.LastIndex(rest, "/")+1:])
}
