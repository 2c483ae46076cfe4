// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/keylock"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Owners is a lock for each object. It protects what the object owns in the cloud.
type Owners = keylock.Locks[ctrl.Request]

// OwnerRequest returns the request for the object that a cloud resource exists for.
func OwnerRequest(o sdn.Owner) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKey{Namespace: o.Namespace, Name: o.Name}}
}

// RequestOf returns the request for an object.
func RequestOf(o client.Object) ctrl.Request {
	return ctrl.Request{NamespacedName: client.ObjectKeyFromObject(o)}
}

// Reference names an object in an Event. It omits the resource version: with it each Event of a
// changing object would be a new one.
func Reference(obj client.Object, kind string) *corev1.ObjectReference {
	version := v1.GroupVersion.String()
	if kind == "Pod" || kind == "Service" {
		version = "v1"
	}
	return &corev1.ObjectReference{
		APIVersion: version, Kind: kind, Namespace: obj.GetNamespace(), Name: obj.GetName(), UID: obj.GetUID(),
	}
}

// Announce creates an Event of type Warning about an object, in the object's namespace or in "default", unless the API
// server has an Event of that name: no other process creates it again, for as long as the API server
// keeps Events. In a namespace that is being deleted it creates none.
func Announce(ctx context.Context, c client.Client, name string, about *corev1.ObjectReference, reason, action, note string) error {
	instance, err := os.Hostname()
	if err != nil {
		instance = "unknown"
	}
	err = c.Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: cmp.Or(about.Namespace, metav1.NamespaceDefault), Name: name}, EventTime: metav1.NowMicro(), Regarding: *about,
		ReportingController: "kuryr-controller", ReportingInstance: "kuryr-controller-" + instance,
		Type: corev1.EventTypeWarning, Reason: reason, Action: action, Note: note,
	})
	if err == nil || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return fmt.Errorf("writing an Event on %s %s/%s: %w", about.Kind, about.Namespace, about.Name, err)
}

// PodOf returns a pod with the identity that a KuryrPort names, for use in an Event.
func PodOf(ref *v1.PodReference) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ref.Namespace, Name: ref.Name, UID: ref.UID}}
}

// Reword transforms the message of each condition. Tests replace it, before they start a
// controller, to show that no decision depends on the words of a message.
var Reword = func(message string) string { return message }

// SetCondition sets one condition in list. The transition time changes only with the status. now is
// truncated to the second.
func SetCondition(list *[]metav1.Condition, kind string, is bool, reason, message string, generation int64, now time.Time) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(list, metav1.Condition{
		Type: kind, Status: status, Reason: reason, Message: Reword(message), ObservedGeneration: generation,
		LastTransitionTime: metav1.Time{Time: now.Truncate(time.Second)},
	})
}

// Retry returns the result of a reconcile after a write. A conflict is no error: another client was
// faster, and the event of its write follows.
func Retry(err error) (ctrl.Result, error) {
	if apierrors.IsConflict(err) {
		return ctrl.Result{RequeueAfter: 100 * time.Millisecond}, nil
	}
	return ctrl.Result{}, err
}

// Lost returns nil for an error that says that the object is gone: the event of the deletion
// follows. It returns other errors unchanged.
func Lost(err error) error { return client.IgnoreNotFound(err) }

// Label sets the label of a KuryrPort to a phase. It writes nothing to the API server.
func Label(port *v1.KuryrPort, phase v1.PortPhase) {
	metav1.SetMetaDataLabel(&port.ObjectMeta, v1.PortStatusLabel, string(phase))
}

// NoKuryrPort returns an error unless the API server has no KuryrPort of that name. It is called
// before a port without a known object is deleted. The cache may be late, and a write without an
// answer may have succeeded.
func NoKuryrPort(ctx context.Context, live client.Reader, name string) error {
	err := live.Get(ctx, client.ObjectKey{Name: name}, &v1.KuryrPort{})
	if err == nil {
		return fmt.Errorf("KuryrPort %s exists", name)
	}
	if !apierrors.IsNotFound(err) {
		return fmt.Errorf("checking whether KuryrPort %s exists: %w", name, err)
	}
	return nil
}

// The field owners as the client takes them: see package v1.
const (
	OwnerPool       = client.FieldOwner(v1.FieldOwnerPool)
	OwnerPort       = client.FieldOwner(v1.FieldOwnerPort)
	OwnerAnnotation = client.FieldOwner(v1.FieldOwnerAnnotation)
	OwnerService    = client.FieldOwner(v1.FieldOwnerService)
	OwnerBalancer   = client.FieldOwner(v1.FieldOwnerLoadBalancer)
	OwnerNetwork    = client.FieldOwner(v1.FieldOwnerNetwork)
	OwnerShard      = client.FieldOwner(v1.FieldOwnerShard)

	OwnerNamespaceNetwork = client.FieldOwner(v1.FieldOwnerNamespaceNetwork)
)

// ApplyStatus writes status by server-side apply. status is everything that owner has in obj's
// status. It returns the object's new resource version, empty if the object is gone.
func ApplyStatus(ctx context.Context, c client.Client, obj client.Object, kind string, status any, owner client.FieldOwner) (string, error) {
	return applyStatus(ctx, c, obj, kind, status, owner, "")
}

// applyStatus is ApplyStatus if the API server has the object in version at; empty: in any.
func applyStatus(ctx context.Context, c client.Client, obj client.Object, kind string, status any, owner client.FieldOwner, at string) (string, error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(status)
	if err != nil {
		return "", fmt.Errorf("writing status of %s %s: %w", kind, obj.GetName(), err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"status": fields}}
	u.SetGroupVersionKind(v1.GroupVersion.WithKind(kind))
	u.SetNamespace(obj.GetNamespace())
	u.SetName(obj.GetName())
	u.SetUID(obj.GetUID())
	u.SetResourceVersion(at)
	err = c.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), owner, client.ForceOwnership)
	if err = Lost(err); err != nil {
		return "", fmt.Errorf("writing status of %s %s: %w", kind, obj.GetName(), err)
	}
	return u.GetResourceVersion(), nil
}

// Annotation returns the annotation that names a pod's KuryrPorts; "" if the pod has none.
func Annotation(o client.Object) string { return o.GetAnnotations()[v1.VIFAnnotation] }

// NodeJoined reports whether a node is ready and schedulable.
func NodeJoined(node *corev1.Node) bool {
	return node.DeletionTimestamp.IsZero() && !node.Spec.Unschedulable &&
		slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
		})
}

// usualPods is the number of pods that a kubelet runs by default.
const usualPods = 110

// NodeTakes returns how many pods the node's kubelet can run, and why not more. A node that is not
// ready may run pods: its CSI driver may be missing, and a new node is not ready before its network
// plugin. If the control plane does not hear from the kubelet (Ready is Unknown), the kubelet gets
// no new pods.
func NodeTakes(node *corev1.Node) (n int, why string) {
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
			return 0, "its kubelet does not report (Ready is Unknown)"
		}
	}
	n = usualPods
	if allocatable, ok := node.Status.Allocatable[corev1.ResourcePods]; ok {
		n = int(allocatable.Value())
	}
	return n, fmt.Sprintf("it runs %d pods at most", n)
}

// NodeAddresses returns the node's internal addresses, in its order.
func NodeAddresses(node *corev1.Node) (out []string) {
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			out = append(out, a.Address)
		}
	}
	return out
}

// NodeServer returns the ID of the node's OpenStack server by its providerID:
// openstack:///ID, or openstack://REGION/ID. It is empty without a providerID, and for the
// providerID of another cloud.
func NodeServer(node *corev1.Node) string {
	rest, ok := strings.CutPrefix(node.Spec.ProviderID, "openstack://")
	if !ok {
		return ""
	}
	return strings.ToLower(rest[strings.LastIndex(rest, "/")+1:])
}
