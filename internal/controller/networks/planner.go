// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package networks plans and applies the networks of namespaces. The planner writes the spec of the
// KuryrNetwork of each namespace that needs one. The applier makes the network in the SDN, with its
// subnets and the interfaces of its router, and deletes it. Package sites decides which pods get
// ports in it, and the collector finds what is left over.
package networks

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Planner writes the spec and the condition Planned of the KuryrNetwork of each namespace. A
// request is for a namespace, by its name. It reads caches only. What a plan needs of the SDN is asked
// for outside of it: once for each configured subnet and subnet pool, whatever the number of
// namespaces.
type Planner struct {
	PlannerOptions
	client  client.Client
	live    client.Reader // reads past the cache
	events  events.EventRecorder
	queue   kube.Queue[ctrl.Request]
	objects *kube.Object[*v1.KuryrNetwork]

	// What plans need of the SDN. One request serves all namespaces that need its answer, also if it
	// fails.
	subnets  sdn.Answers[string, netip.Prefix]  // prefixes, which never change
	families sdn.Answers[string, int32]         // of subnet pools, which never change
	portUses sdn.Answers[string, []sdn.PortUse] // of networks that are to be replaced

	// written are the writes that the cache may not show yet, by namespace: their prefixes are in use.
	// nil: those of the process that planned before are not read yet. One worker uses it, and the next field.
	written map[string]*v1.KuryrNetwork
	made    []network.Taken   // by the networks of all namespaces, as last read
	moved   atomic.Bool       // a KuryrNetwork has changed since
	told    map[string]string // last Event on a namespace without a KuryrNetwork
}

// PlannerOptions are the parts that a Planner needs beyond the manager. All must be given.
type PlannerOptions struct {
	Subnets  sdn.Subnets
	Pools    sdn.SubnetPools
	Uses     uses
	Settings *settings.Live
	Shards   kube.Shards // one process plans all networks
	Backoff  outcome.Backoff
}

// uses is the part of sdn.Networks that knows the ports in networks.
type uses interface {
	InUse(ctx context.Context, networkID string) ([]sdn.PortUse, error)
}

// NewPlanner returns a Planner. Setup adds it to mgr.
func NewPlanner(mgr ctrl.Manager, o PlannerOptions) *Planner {
	p := &Planner{
		PlannerOptions: o, client: mgr.GetClient(), live: mgr.GetAPIReader(),
		events:  mgr.GetEventRecorder("kuryr-controller"),
		objects: kube.NewObject(mgr.GetClient(), &v1.KuryrNetwork{}, kind, kube.OwnerNamespaceNetwork, v1.NetworkFinalizer),
		told:    map[string]string{},
	}
	p.subnets.KeepError, p.families.KeepError, p.portUses.KeepError = p.keepError, p.keepError, p.keepError
	p.objects.Live = p.live
	p.moved.Store(true)
	return p
}

// Reconcile plans the network of one namespace.
func (p *Planner) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	ns := kube.NamespaceMeta()
	err := p.client.Get(ctx, client.ObjectKey{Name: req.Name}, ns, kube.ReadOnly)
	if apierrors.IsNotFound(err) || err == nil && !ns.DeletionTimestamp.IsZero() {
		delete(p.told, req.Name) // Kubernetes deletes the KuryrNetwork with the namespace
		delete(p.written, req.Name)
		return ctrl.Result{}, nil
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("reading namespace %s: %w", req.Name, err)
	}
	if err := p.inherit(ctx); err != nil {
		return ctrl.Result{}, err
	}
	kn, state, err := p.objects.Get(ctx, types.NamespacedName{Namespace: req.Name, Name: req.Name})
	if err != nil {
		return ctrl.Result{}, err
	}
	delete(p.written, req.Name) // the cache shows it
	if state == kube.Gone {
		kn = nil
	}
	if kn != nil && !kn.DeletionTimestamp.IsZero() {
		return ctrl.Result{}, nil // the event of its end follows
	}
	in, failed := p.input(ctx, ns, kn)
	if failed != nil {
		return p.unsure(ctx, ns, kn, failed)
	}
	return p.carryOut(ctx, ns, kn, network.Next(in))
}

// inherit reads the KuryrNetworks past the cache, once after this process has gained the task: the cache
// may not show the last writes of the process before.
func (p *Planner) inherit(ctx context.Context) error {
	if p.written != nil {
		return nil
	}
	var list v1.KuryrNetworkList
	if err := p.live.List(ctx, &list); err != nil {
		return fmt.Errorf("listing KuryrNetworks: %w", err)
	}
	p.written = map[string]*v1.KuryrNetwork{}
	for i := range list.Items {
		if kn := &list.Items[i]; kn.Name == kn.Namespace {
			p.written[kn.Namespace] = kn
			p.objects.Wrote(kn)
		}
	}
	return nil
}

// input returns what the plan depends on. It fails without an answer of the SDN that the plan needs.
func (p *Planner) input(ctx context.Context, ns *metav1.PartialObjectMetadata, kn *v1.KuryrNetwork) (network.Input, error) {
	in := network.Input{UID: ns.UID, Choice: p.Settings.Rules().Network(ns)}
	if kn == nil && (in.Choice.Common || in.Choice.Blocked) {
		return in, nil
	}
	pods, err := p.pods(ctx, ns.Name)
	if err != nil {
		return in, err
	}
	in.Wanted = in.Choice.Now || len(pods) > 0
	if kn == nil && !in.Wanted {
		return in, nil
	}
	if kn != nil {
		if err := p.current(ctx, &in, kn, pods); err != nil {
			return in, err
		}
	}
	if in.Choice.Mode == v1.NetworkNamespace && !in.Choice.Common {
		if in.Pools, err = p.poolsOf(ctx, in.Choice.SubnetPoolIDs, itself(ns.Name)); err != nil {
			return in, err
		}
	}
	choosing := in.Choice.Mode == v1.NetworkFlat && (kn == nil || len(kn.Spec.Subnets) == 0 || in.Full != 0)
	in.Taken, err = p.taken(ctx, ns.Name, choosing)
	return in, err
}

// pods returns the pods of a namespace that are to have ports, scheduled or not.
func (p *Planner) pods(ctx context.Context, namespace string) (all []*corev1.Pod, err error) {
	var list corev1.PodList
	if err := p.client.List(ctx, &list, client.InNamespace(namespace), kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing pods of namespace %s: %w", namespace, err)
	}
	for i := range list.Items {
		if wants(&list.Items[i]) {
			all = append(all, &list.Items[i])
		}
	}
	return all, nil
}

// wants reports whether a pod is to have a port. The network of a pod that is not scheduled yet is
// made meanwhile.
func wants(pod *corev1.Pod) bool {
	return !pod.Spec.HostNetwork && pod.DeletionTimestamp.IsZero() && !pool.Finished(pod)
}

// current adds what there is of a KuryrNetwork.
func (p *Planner) current(ctx context.Context, in *network.Input, kn *v1.KuryrNetwork, pods []*corev1.Pod) error {
	in.Current = &kn.Spec
	for _, s := range kn.Status.Subnets {
		if prefix, err := netip.ParsePrefix(s.CIDR); err == nil {
			in.Made = append(in.Made, prefix)
		}
	}
	if kn.Status.NetworkID == "" {
		return p.emptied(ctx, in, kn)
	}
	ports, err := portsWith(ctx, p.client, portNamespace, kn.Namespace)
	if err != nil {
		return err
	}
	has := map[types.UID]bool{}
	for _, port := range ports {
		has[port.Spec.PodRef.UID] = true
		in.InUse = in.InUse || port.Spec.NetworkID == kn.Status.NetworkID ||
			// Ports on nodes with subnets of their own are in other networks, and in the project.
			kn.Spec.Mode == v1.NetworkShared && port.Spec.ProjectID == kn.Spec.ProjectID
	}
	if meta.IsStatusConditionTrue(kn.Status.Conditions, v1.ConditionReady) {
		in.InUse = in.InUse || slices.ContainsFunc(pods, func(pod *corev1.Pod) bool { return !has[pod.UID] })
	}
	in.Full, err = p.full(ctx, kn)
	return err
}

// emptied adds whether the network of a KuryrNetwork without a status is in use: somebody may have
// emptied the status while pods have ports there.
func (p *Planner) emptied(ctx context.Context, in *network.Input, kn *v1.KuryrNetwork) error {
	pools, err := kube.PoolsOf(ctx, p.client, kn.Namespace)
	if err != nil {
		return err
	}
	ports, err := portsWith(ctx, p.client, portNamespace, kn.Namespace)
	in.InUse = slices.ContainsFunc(ports, func(port *v1.KuryrPort) bool {
		return slices.ContainsFunc(pools, func(pool v1.KuryrPortPool) bool { return pool.Name == port.Spec.Pool })
	})
	return err
}

// full returns the IP family that the network of a namespace needs another subnet of; 0 if it needs
// none. The ports of the network are counted only if a pool of the namespace gets no addresses.
func (p *Planner) full(ctx context.Context, kn *v1.KuryrNetwork) (int32, error) {
	pools, err := kube.PoolsOf(ctx, p.client, kn.Namespace)
	exhausted := slices.ContainsFunc(pools, func(pool v1.KuryrPortPool) bool {
		return meta.IsStatusConditionTrue(pool.Status.Conditions, v1.ConditionSubnetExhausted)
	})
	if err != nil || !exhausted || !network.Makes(&kn.Spec) {
		return 0, err
	}
	ports, err := portsWith(ctx, p.client, portNetwork, kn.Status.NetworkID)
	if err != nil {
		return 0, err
	}
	used := map[string]int{}
	for _, port := range ports {
		for _, a := range port.Spec.VIF.Addresses {
			used[a.SubnetID]++
		}
	}
	return network.FullFamily(&kn.Spec, &kn.Status, used), nil
}

// carryOut writes a plan.
func (p *Planner) carryOut(ctx context.Context, ns *metav1.PartialObjectMetadata, kn *v1.KuryrNetwork, plan network.Plan) (ctrl.Result, error) {
	if plan.Delete {
		if others, err := p.others(ctx, kn); err != nil {
			return p.unsure(ctx, ns, kn, err)
		} else if others != "" {
			why := "the network of the namespace is to be replaced, and stays as it is while it has " + others
			return ctrl.Result{RequeueAfter: p.Backoff.Rejected}, p.tell(ctx, ns, kn, v1.ReasonNetworkInUse, why)
		}
		ctrl.LoggerFrom(ctx).Info("replacing the network of a namespace, which no pod has a port in", "namespace", ns.Name)
		err := p.client.Delete(ctx, kn, client.Preconditions{UID: &kn.UID, ResourceVersion: &kn.ResourceVersion})
		return kube.Retry(kube.Lost(err))
	}
	if plan.Spec != nil && (kn == nil || !equality.Semantic.DeepEqual(&kn.Spec, plan.Spec)) {
		next, err := p.write(ctx, ns, kn, plan.Spec)
		if err != nil || next == nil {
			return kube.Retry(err)
		}
		kn = next
	}
	return kube.Retry(p.tell(ctx, ns, kn, plan.Reason, plan.Why))
}

// write writes the spec of a KuryrNetwork. It returns nil if the namespace is being deleted.
func (p *Planner) write(ctx context.Context, ns *metav1.PartialObjectMetadata, kn *v1.KuryrNetwork, spec *v1.KuryrNetworkSpec) (*v1.KuryrNetwork, error) {
	next := &v1.KuryrNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: ns.Name, Name: ns.Name}}
	if kn != nil {
		next = kn.DeepCopy()
	}
	next.Spec = *spec
	err := p.objects.Apply(ctx, kn, next, spec)
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	p.written[ns.Name] = next
	ctrl.LoggerFrom(ctx).V(1).Info("planned network", "namespace", ns.Name, "mode", spec.Mode, "subnets", len(spec.Subnets), "new", kn == nil)
	return next, nil
}

// planAll plans all namespaces anew after the settings have changed.
func (p *Planner) planAll(ctx context.Context) error {
	p.subnets.ForgetErrors() // the SDN is asked again for what it did not have
	p.families.ForgetErrors()
	all, err := p.all(ctx)
	for _, req := range all {
		p.queue.Add(req)
	}
	return err
}

// all returns the requests of all namespaces.
func (p *Planner) all(ctx context.Context) (all []ctrl.Request, _ error) {
	var list metav1.PartialObjectMetadataList
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := p.client.List(ctx, &list, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	for i := range list.Items {
		all = append(all, itself(list.Items[i].Name))
	}
	return all, nil
}
