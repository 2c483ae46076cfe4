// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package kube is what the reconcilers share of Kubernetes: the cache with its indexes
// and what it keeps of each kind, status and metadata writes, queues that are fed from
// outside, runnables of the leader, and the annotation that names a pod's KuryrPorts.
// It decides nothing, and calls no SDN.
package kube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Fields that the cache is indexed by.
const (
	podNode  = "spec.nodeName"
	portNode = "spec.nodeName"
	poolNode = "spec.key.nodeName"
	// PortAddress is there as soon as Services are served.
	PortAddress = "spec.vif.addresses[].ip" // of a KuryrPort
)

// ReadOnly marks reads of the cache whose result is not changed: they share it.
const ReadOnly = client.UnsafeDisableDeepCopyOption(true)

// PortsOn returns the KuryrPorts of a node, of whatever pool. They are the cache's,
// as are those of the functions below.
func PortsOn(ctx context.Context, c client.Reader, node string) ([]v1.KuryrPort, error) {
	var list v1.KuryrPortList
	if err := c.List(ctx, &list, client.MatchingFields{portNode: node}, ReadOnly); err != nil {
		return nil, fmt.Errorf("listing KuryrPorts of node %s: %w", node, err)
	}
	return list.Items, nil
}

// PoolsOn returns the KuryrPortPools of a node.
func PoolsOn(ctx context.Context, c client.Reader, node string) ([]v1.KuryrPortPool, error) {
	var list v1.KuryrPortPoolList
	if err := c.List(ctx, &list, client.MatchingFields{poolNode: node}, ReadOnly); err != nil {
		return nil, fmt.Errorf("listing KuryrPortPools of node %s: %w", node, err)
	}
	return list.Items, nil
}

// PodsOn returns the pods of a node.
func PodsOn(ctx context.Context, c client.Reader, node string) ([]corev1.Pod, error) {
	var list corev1.PodList
	if err := c.List(ctx, &list, client.MatchingFields{podNode: node}, ReadOnly); err != nil {
		return nil, fmt.Errorf("listing pods of node %s: %w", node, err)
	}
	return list.Items, nil
}

// CacheOptions returns how the controller's cache is to be made: it keeps of
// each object what the reconcilers look at, which for a pod is a few hundred
// bytes of what are often ten thousand.
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
		obj.ObjectMeta = metav1.ObjectMeta{Name: obj.Name, UID: obj.UID, ResourceVersion: obj.ResourceVersion, Labels: obj.Labels}
	case client.Object:
		obj.SetManagedFields(nil)
	}
	return in, nil
}

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

// trimNode keeps what a node is called and is, of which machine, where it is reached,
// whether it takes pods and how many. The last four are why nodes are not watched for their metadata
// alone: one watch costs less than that and a request for each node that is a
// virtual machine, after each start. kubelet writes a node's status every five
// minutes while nothing changes.
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

// AddIndexes makes the informers of all kinds that the reconcilers read.
//
// Pods are indexed by node and not by pool: what pool a pod belongs to changes
// with the settings, and an index is not made anew.
func AddIndexes(ctx context.Context, mgr ctrl.Manager) error {
	for _, index := range []struct {
		obj   client.Object
		field string
		value func(client.Object) string
	}{
		{&corev1.Pod{}, podNode, func(o client.Object) string { return o.(*corev1.Pod).Spec.NodeName }},
		{&v1.KuryrPort{}, portNode, func(o client.Object) string { return o.(*v1.KuryrPort).Spec.NodeName }},
		{&v1.KuryrPortPool{}, poolNode, func(o client.Object) string { return o.(*v1.KuryrPortPool).Spec.Key.NodeName }},
	} {
		err := AddIndex(ctx, mgr, index.obj, index.field, func(o client.Object) []string {
			if v := index.value(o); v != "" {
				return []string{v}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for what, obj := range map[string]client.Object{"nodes": &corev1.Node{}, "namespaces": NamespaceMeta()} {
		if _, err := mgr.GetCache().GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watching %s: %w", what, err)
		}
	}
	return nil
}

// AddIndex makes one index more.
func AddIndex(ctx context.Context, mgr ctrl.Manager, obj client.Object, field string, values client.IndexerFunc) error {
	if err := mgr.GetFieldIndexer().IndexField(ctx, obj, field, values); err != nil {
		return fmt.Errorf("indexing %T by %s: %w", obj, field, err)
	}
	return nil
}

// AddPortAddressIndex makes the index that PortsAt needs.
func AddPortAddressIndex(ctx context.Context, mgr ctrl.Manager) error {
	return AddIndex(ctx, mgr, &v1.KuryrPort{}, PortAddress, AddressesOfPort)
}

// NamespaceMeta returns an empty Namespace of which nothing but the metadata is read.
func NamespaceMeta() *metav1.PartialObjectMetadata {
	ns := &metav1.PartialObjectMetadata{}
	ns.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return ns
}

// AddReady makes the manager ready when its caches are.
func AddReady(mgr ctrl.Manager) error {
	return mgr.AddReadyzCheck("caches", func(r *http.Request) error {
		ctx, cancel := context.WithTimeout(r.Context(), 100*time.Millisecond)
		defer cancel()
		if !mgr.GetCache().WaitForCacheSync(ctx) {
			return errors.New("caches are not in step with the API server yet")
		}
		return nil
	})
}

// Older reports whether resource version a is before b. What cannot be told is
// not older: then a stale read costs a conflict, and waiting might never end.
func Older(a, b string) bool {
	c, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && c < 0
}

// PortsAt returns the KuryrPorts that have an address. They are the cache's.
func PortsAt(ctx context.Context, c client.Reader, ip string) ([]*v1.KuryrPort, error) {
	var list v1.KuryrPortList
	if err := c.List(ctx, &list, client.MatchingFields{PortAddress: ip}, ReadOnly); err != nil {
		return nil, fmt.Errorf("looking for the KuryrPort of %s: %w", ip, err)
	}
	ports := make([]*v1.KuryrPort, len(list.Items))
	for i := range list.Items {
		ports[i] = &list.Items[i]
	}
	return ports, nil
}

// LoadBalancers returns all KuryrLoadBalancers. They are the cache's.
func LoadBalancers(ctx context.Context, c client.Reader) (map[ctrl.Request]*v1.KuryrLoadBalancer, error) {
	var list v1.KuryrLoadBalancerList
	if err := c.List(ctx, &list, ReadOnly); err != nil {
		return nil, fmt.Errorf("listing KuryrLoadBalancers: %w", err)
	}
	all := make(map[ctrl.Request]*v1.KuryrLoadBalancer, len(list.Items))
	for i := range list.Items {
		all[RequestOf(&list.Items[i])] = &list.Items[i]
	}
	return all, nil
}

// AddressesOfPort returns the IP addresses of a KuryrPort, as its index has them.
func AddressesOfPort(o client.Object) []string {
	var ips []string
	for _, a := range o.(*v1.KuryrPort).Spec.VIF.Addresses {
		ips = append(ips, a.IP)
	}
	return ips
}
