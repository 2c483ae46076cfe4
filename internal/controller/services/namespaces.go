// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/service"
)

// home is what a Service's namespace says of its load balancers.
type home struct {
	service.Namespace
	podsProject string // of the namespace's pods
}

// homeOf returns what the namespace of a Service says.
//
// Where the pods are decides, and that is what the KuryrNetwork says: it does not follow a changed
// annotation as long as pods are in it. One in deletion that no pod is in is about to be made anew as
// the namespace says now. A namespace or KuryrNetwork that is not known yet holds new load balancers
// up. Its event plans the Service again.
func (r *Reconciler) homeOf(ctx context.Context, rules *settings.Rules, name string) (home, error) {
	var h home
	ns := kube.NamespaceMeta()
	if err := r.client.Get(ctx, client.ObjectKey{Name: name}, ns, kube.ReadOnly); apierrors.IsNotFound(err) {
		h.Blocked = true
		return h, nil
	} else if err != nil {
		return h, fmt.Errorf("reading namespace %s: %w", name, err)
	}
	choice := rules.Network(ns)
	kn, known, err := r.Networks.Of(ctx, name)
	if err != nil {
		return h, err
	}
	h.podsProject = choice.ProjectID
	h.Blocked, h.Faults = choice.Blocked || !known && !(choice.Common && r.Networks.Lacking()), nil
	if choice.Blocked {
		h.Faults = choice.Faults
	}
	if kn != nil && kube.Serving(kn) && kn.Spec.NamespaceUID == string(ns.UID) {
		h.podsProject, h.Subnets = kn.Spec.ProjectID, subnetsOf(kn)
	}
	if h.podsProject != rules.Pods.ProjectID {
		h.ProjectID = h.podsProject
	}
	return h, nil
}

// subnetsOf returns the subnets that Kuryr has made for a namespace, as far as they exist.
func subnetsOf(kn *v1.KuryrNetwork) (all []service.Subnet) {
	for _, s := range kn.Status.Subnets {
		if prefix, err := netip.ParsePrefix(s.CIDR); err == nil {
			all = append(all, service.Subnet{ID: s.ID, Prefix: prefix.Masked()})
		}
	}
	return all
}

// projectsOf returns the projects that namespaces may be in.
func projectsOf(rules *settings.Rules) (all []service.Project) {
	for _, p := range rules.Projects {
		all = append(all, service.Project{ID: p.ProjectID, ExternalNetworkID: p.ExternalNetworkID})
	}
	return all
}

// podRanges returns the configured ranges that prefixes of namespaces' networks are chosen from.
func podRanges(rules *settings.Rules) (all []netip.Prefix) {
	add := func(ranges []string) {
		for _, text := range ranges {
			if r, err := netip.ParsePrefix(text); err == nil {
				all = append(all, r.Masked())
			}
		}
	}
	add(rules.Networks.Ranges)
	for _, n := range rules.Networks.Namespaces {
		add(n.Ranges)
	}
	return all
}

// isForeign reports whether a port belongs to a pod of another project than the pods of the
// Service's namespace. A pod of the same namespace is never foreign: the namespace may have changed
// its project. Pods of the common project are not foreign to each other. A project that the
// configuration no longer lists is another one still, as the KuryrNetwork of the pod's namespace,
// theirs, says.
func (h *home) isForeign(rules *settings.Rules, port *v1.KuryrPort, namespace string, theirs *v1.KuryrNetwork) bool {
	if port.Spec.PodRef == nil || port.Spec.PodRef.Namespace == namespace || port.Spec.ProjectID == h.podsProject {
		return false
	}
	if h.podsProject != rules.Pods.ProjectID || theirs != nil && theirs.Spec.ProjectID == port.Spec.ProjectID {
		return true
	}
	for _, p := range rules.Projects {
		if p.ProjectID == port.Spec.ProjectID {
			return p.ProjectID != rules.Pods.ProjectID
		}
	}
	return false
}

// servicesIn requeues the Services of a namespace; of all namespaces if it is empty.
func (r *Reconciler) servicesIn(ctx context.Context, namespace string) []reconcile.Request {
	var list corev1.ServiceList
	if err := r.client.List(ctx, &list, client.InNamespace(namespace), kube.ReadOnly); err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "cannot find the Services of a namespace", "namespace", namespace)
		return nil
	}
	var requests []reconcile.Request
	for i := range list.Items {
		requests = append(requests, kube.RequestOf(&list.Items[i]))
	}
	return requests
}

// followNetworks requeues the Services of a namespace after each event of its KuryrNetwork, and all
// Services once the KuryrNetworks are known.
func (r *Reconciler) followNetworks(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
	r.Networks.Follow(func(namespace string) {
		for _, req := range r.servicesIn(ctx, namespace) {
			queue.Add(req)
		}
	})
	return nil
}

// has reports whether a KuryrLoadBalancer has something in the cloud.
func has(klb *v1.KuryrLoadBalancer) bool {
	return klb != nil && (len(klb.Status.LoadBalancers) > 0 || klb.Status.PublicIP != nil)
}
