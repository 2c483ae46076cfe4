// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/service"
	"github.com/kuryr-go/kuryr/internal/sdn"
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

// subnetPatience is how long a worker waits for the cloud's answer about a subnet. Then the worker
// turns to Services that need no answer, such as deleted ones.
const subnetPatience = time.Second

// keepError returns how long an error about a subnet counts as the answer. The range of an existing
// subnet never changes. So the cloud is asked for a known subnet only by lookAtSubnets, and for a
// missing one once in Backoff.Rejected.
func (o *Options) keepError(err error, _ int) time.Duration {
	if outcome.Of(outcome.Subnet, err).Lasting {
		return o.Backoff.Rejected
	}
	return 0
}

// find returns the subnets of these IDs. lost has the IDs of subnets that do not exist or that
// Kuryr's credential cannot see. find fails if the cloud does not answer, and returns a
// PendingError if the answer takes too long.
func (r *Reconciler) find(ctx context.Context, ids []string) (found []service.Subnet, lost []string, err error) {
	for _, id := range ids {
		one, err := r.ranges.Get(ctx, id, sdn.Always, func(ctx context.Context) (service.Subnet, error) { return r.readSubnet(ctx, id) })
		switch {
		case err == nil:
			found = append(found, one)
		case outcome.Of(outcome.Subnet, err).Lasting:
			lost = append(lost, id)
		default:
			return nil, nil, err
		}
	}
	return found, lost, nil
}

func (r *Reconciler) readSubnet(ctx context.Context, id string) (service.Subnet, error) {
	got, err := r.Subnets.Subnet(ctx, id)
	var prefix netip.Prefix
	if err == nil {
		if prefix, err = netip.ParsePrefix(got.CIDR); err != nil {
			err = fmt.Errorf("%w: %w", sdn.ErrInvalid, err)
		}
	}
	if outcome.Of(outcome.Subnet, err).Lasting {
		ctrl.LoggerFrom(ctx).Error(err, "cannot read the prefix of a subnet of the configuration", "subnet", id)
	}
	if err != nil {
		return service.Subnet{}, fmt.Errorf("reading subnet %s: %w", id, err)
	}
	return service.Subnet{ID: got.ID, Prefix: prefix.Masked()}, nil
}

// lookAtSubnets asks the cloud again for the known subnets that the settings name. It plans all
// Services again when the cloud no longer shows one of them. A subnet stays known if the cloud does
// not answer. A process that plans no Services asks nothing.
func (r *Reconciler) lookAtSubnets(ctx context.Context) error {
	if r.Shards.Share() == 0 {
		return nil
	}
	rules, changed := r.Settings.Rules(), false
	for _, id := range v1.GroupSet(slices.Concat(rules.Services.SubnetIDs, memberSubnets(rules))) {
		if _, known, err := r.ranges.Fresh(id); !known || err != nil {
			continue
		}
		if _, err := r.readSubnet(ctx, id); outcome.Of(outcome.Subnet, err).Lasting {
			changed = true
			r.ranges.Forget(func(k string, _ service.Subnet) bool { return k == id })
		}
	}
	if changed {
		r.planAll(ctx)
	}
	return nil
}
