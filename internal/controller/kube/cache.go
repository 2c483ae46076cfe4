// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package kube is what the reconcilers share of Kubernetes. It has the cache, its indexes, and the
// choice of fields that the cache keeps of each kind. It has writes of status and metadata, queues
// that are fed from outside, and runnables. It reads the annotation that names a
// pod's KuryrPorts. It makes no decisions, and calls no SDN.
package kube

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// The fields that the cache is indexed by.
const (
	podNode  = "spec.nodeName"
	portNode = "spec.nodeName"
	poolNode = "spec.key.nodeName"
	// poolNamespace leaves out the pools that serve all namespaces.
	poolNamespace = "spec.key.namespace"
	// PortAddress exists as soon as Services are served.
	PortAddress = "spec.vif.addresses[].ip" // of a KuryrPort
)

// ReadOnly marks a read of the cache whose result is not changed: the result is shared with the
// cache.
const ReadOnly = client.UnsafeDisableDeepCopyOption(true)

// listBy lists the objects of the cache whose indexed field has a value. what names them in an error.
func listBy[L client.ObjectList](ctx context.Context, c client.Reader, list L, what, field, value string) (L, error) {
	if err := c.List(ctx, list, client.MatchingFields{field: value}, ReadOnly); err != nil {
		return list, fmt.Errorf("listing %s %s: %w", what, value, err)
	}
	return list, nil
}

// PortsOn returns the KuryrPorts of a node, of all its pools. The objects are shared with the
// cache, as are those of the functions below.
func PortsOn(ctx context.Context, c client.Reader, node string) ([]v1.KuryrPort, error) {
	list, err := listBy(ctx, c, &v1.KuryrPortList{}, "KuryrPorts of node", portNode, node)
	return list.Items, err
}

// PoolsOn returns the KuryrPortPools of a node.
func PoolsOn(ctx context.Context, c client.Reader, node string) ([]v1.KuryrPortPool, error) {
	list, err := listBy(ctx, c, &v1.KuryrPortPoolList{}, "KuryrPortPools of node", poolNode, node)
	return list.Items, err
}

// PoolsOf returns the KuryrPortPools that serve the pods of a namespace only.
func PoolsOf(ctx context.Context, c client.Reader, namespace string) ([]v1.KuryrPortPool, error) {
	list, err := listBy(ctx, c, &v1.KuryrPortPoolList{}, "KuryrPortPools of namespace", poolNamespace, namespace)
	return list.Items, err
}

// PodsOn returns the pods of a node.
func PodsOn(ctx context.Context, c client.Reader, node string) ([]corev1.Pod, error) {
	list, err := listBy(ctx, c, &corev1.PodList{}, "pods of node", podNode, node)
	return list.Items, err
}

// PortsAt returns the KuryrPorts with an address.
func PortsAt(ctx context.Context, c client.Reader, ip string) ([]*v1.KuryrPort, error) {
	list, err := listBy(ctx, c, &v1.KuryrPortList{}, "KuryrPorts with address", PortAddress, ip)
	ports := make([]*v1.KuryrPort, len(list.Items))
	for i := range list.Items {
		ports[i] = &list.Items[i]
	}
	return ports, err
}

// CacheOptions returns the options of the controller's cache. The cache keeps only the fields that
// the reconcilers read. It keeps some hundred bytes of a pod, which often has ten thousand.
func CacheOptions() cache.Options {
	return cache.Options{DefaultTransform: trim, ReaderFailOnMissingInformer: false}
}

func trim(in any) (any, error) {
	switch obj := in.(type) {
	case *corev1.Pod:
		return trimPod(obj), nil
	case *corev1.Node:
		return trimNode(obj), nil
	case *metav1.PartialObjectMetadata: // a namespace
		maps.DeleteFunc(obj.Annotations, func(name, _ string) bool { return !slices.Contains(choosing, name) })
		obj.ObjectMeta = metav1.ObjectMeta{
			Name: obj.Name, UID: obj.UID, ResourceVersion: obj.ResourceVersion, DeletionTimestamp: obj.DeletionTimestamp,
			Labels: obj.Labels, Annotations: obj.Annotations,
		}
	case *corev1.Service: // the plan needs to know when it was written, and not which fields
		for i := range obj.ManagedFields {
			obj.ManagedFields[i].FieldsV1 = nil
		}
	case client.Object:
		obj.SetManagedFields(nil)
	}
	return in, nil
}

// choosing are the annotations by which a namespace chooses its network.
var choosing = []string{v1.ProjectAnnotation, v1.NetworkAnnotation, v1.NetworkModeAnnotation}

func trimPod(pod *corev1.Pod) *corev1.Pod {
	out := &corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp, DeletionTimestamp: pod.DeletionTimestamp, Labels: pod.Labels,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, HostNetwork: pod.Spec.HostNetwork},
		Status: corev1.PodStatus{Phase: pod.Status.Phase, PodIPs: pod.Status.PodIPs},
	}
	if vif, ok := pod.Annotations[v1.VIFAnnotation]; ok {
		out.Annotations = map[string]string{v1.VIFAnnotation: vif}
	}
	return out
}

// trimNode keeps a node's metadata, machine, addresses, readiness and number of pods. A watch of
// the metadata alone would lack fields of the spec and the status. After each start it would cost
// one more request per virtual machine. kubelet writes a node's status every five minutes while
// nothing changes.
func trimNode(node *corev1.Node) *corev1.Node {
	out := &corev1.Node{
		TypeMeta: node.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: node.Labels,
			CreationTimestamp: node.CreationTimestamp, DeletionTimestamp: node.DeletionTimestamp,
		},
		Spec:   corev1.NodeSpec{Unschedulable: node.Spec.Unschedulable, ProviderID: node.Spec.ProviderID},
		Status: corev1.NodeStatus{NodeInfo: corev1.NodeSystemInfo{SystemUUID: node.Status.NodeInfo.SystemUUID}},
	}
	if n, ok := node.Status.Allocatable[corev1.ResourcePods]; ok {
		out.Status.Allocatable = corev1.ResourceList{corev1.ResourcePods: n}
	}
	for _, a := range node.Status.Addresses {
		if a.Type == corev1.NodeInternalIP {
			out.Status.Addresses = append(out.Status.Addresses, a)
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			out.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return out
}

// AddIndexes creates the informers of all kinds that the reconcilers read.
//
// Pods are indexed by node and not by pool: a pod's pool changes with the settings, and an index is
// not rebuilt.
func AddIndexes(ctx context.Context, mgr ctrl.Manager) error {
	err := errors.Join(
		AddIndexBy(ctx, mgr, &corev1.Pod{}, podNode, func(p *corev1.Pod) string { return p.Spec.NodeName }),
		AddIndexBy(ctx, mgr, &v1.KuryrPort{}, portNode, func(p *v1.KuryrPort) string { return p.Spec.NodeName }),
		AddIndexBy(ctx, mgr, &v1.KuryrPortPool{}, poolNode, func(p *v1.KuryrPortPool) string { return p.Spec.Key.NodeName }),
		AddIndexBy(ctx, mgr, &v1.KuryrPortPool{}, poolNamespace, func(p *v1.KuryrPortPool) string { return p.Spec.Key.Namespace }),
	)
	if err != nil {
		return err
	}
	for what, obj := range map[string]client.Object{"nodes": &corev1.Node{}, "namespaces": NamespaceMeta()} {
		if _, err := mgr.GetCache().GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watching %s: %w", what, err)
		}
	}
	return nil
}

// AddIndex adds an index to the cache.
func AddIndex(ctx context.Context, mgr ctrl.Manager, obj client.Object, field string, values client.IndexerFunc) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, obj, field, values); err != nil {
		return fmt.Errorf("indexing %T by %s: %w", obj, field, err)
	}
	return nil
}

// AddIndexBy adds an index of one value of an object. An object is not in it if the value is empty.
func AddIndexBy[T client.Object](ctx context.Context, mgr ctrl.Manager, obj T, field string, value func(T) string) error {
	return AddIndex(ctx, mgr, obj, field, func(o client.Object) []string {
		if v := value(o.(T)); v != "" { // an index is of one type
			return []string{v}
		}
		return nil
	})
}

// AddPortAddressIndex adds the index that PortsAt needs.
func AddPortAddressIndex(ctx context.Context, mgr ctrl.Manager) error {
	return AddIndex(ctx, mgr, &v1.KuryrPort{}, PortAddress, AddressesOfPort)
}

// NamespaceMeta returns an empty Namespace, for reading metadata only.
func NamespaceMeta() *metav1.PartialObjectMetadata {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return ns
}

// AddReady makes the manager ready once its caches are filled.
func AddReady(mgr ctrl.Manager) error {
	return mgr.AddReadyzCheck("caches", func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("the caches do not have all objects of the API server yet")
		}
		return nil
	})
}

// Older reports whether resource version a is before b. Versions that cannot be compared are not
// older: a stale read costs a conflict, but a wait might never end.
func Older(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c < 0
}

// All returns all objects of the kind of list. They are shared with the cache.
func All[T client.Object](ctx context.Context, c client.Reader, list client.ObjectList) (map[ctrl.Request]T, error) {
	if err := c.List(ctx, list, ReadOnly); err != nil {
		return nil, fmt.Errorf("listing %T: %w", list, err)
	}
	all := make(map[ctrl.Request]T, meta.LenList(list))
	return all, meta.EachListItem(list, func(o runtime.Object) error {
		obj := o.(T) // the type of the items of list
		all[RequestOf(obj)] = obj
		return nil
	})
}

// LoadBalancers returns all KuryrLoadBalancers. The objects are shared with the cache.
func LoadBalancers(ctx context.Context, c client.Reader) (map[ctrl.Request]*v1.KuryrLoadBalancer, error) {
	return All[*v1.KuryrLoadBalancer](ctx, c, &v1.KuryrLoadBalancerList{})
}

// AddressesOfPort returns the IP addresses of a KuryrPort. They are the keys of its index.
func AddressesOfPort(o client.Object) []string { return o.(*v1.KuryrPort).Spec.VIF.IPs() }
