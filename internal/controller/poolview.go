// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/supply"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// podInterface is the name of a pod's interface.
const podInterface = "eth0"

// view is what one reconcile of a pool has to do with. The objects are the
// cache's and not to be changed.
type view struct {
	req    pool.Ref
	state  pool.State
	counts pool.Count

	site    *site
	key     *v1.PoolKey // nil if nothing says what the pool is for
	current bool        // the settings lead here
	unsure  bool        // whether they do cannot be told yet
	levels  pool.Levels // as the settings say, also while the pool is not to be filled
	object  *v1.KuryrPortPool
	ports   map[string]*v1.KuryrPort
	pods    map[types.UID]*corev1.Pod // all of the node
	waiting []*corev1.Pod
	outrun  bool                // another pool is about to give a port to a pod of this one
	groups  map[string][]string // that are to be, of each port that has drifted
	grants  map[string][]string // and which of them it has as a member of load balancers
	arrived map[string]supply.Arrival

	failure  error
	episode  int // of failures: see supply.Settle
	refilled time.Time
	asked    int // ports that had been asked for up to then, ever
}

// observe reads all that a plan depends on.
func (r *pools) observe(ctx context.Context, req pool.Ref) (*view, error) {
	v := &view{
		req: req, ports: map[string]*v1.KuryrPort{}, pods: map[types.UID]*corev1.Pod{}, arrived: map[string]supply.Arrival{},
		groups: map[string][]string{}, grants: map[string][]string{},
	}
	var err error
	if v.site, err = r.sites.on(ctx, req.Node); err != nil {
		return nil, err
	}
	v.state.NodeGone = v.site.node == nil
	pods, err := kube.PodsOn(ctx, r.client, req.Node)
	if err != nil {
		return nil, err
	}
	for i := range pods {
		v.pods[pods[i].UID] = &pods[i]
	}
	if err := r.readPool(ctx, v, pods); err != nil {
		return nil, err
	}
	elsewhere, err := r.readPorts(ctx, v)
	if err != nil {
		return nil, err
	}
	if err := r.sortPods(ctx, v, pods, elsewhere); err != nil {
		return nil, err
	}
	if err := r.judge(ctx, v); err != nil {
		return nil, err
	}
	if err := r.dropWritten(ctx, req); err != nil {
		return nil, err
	}
	r.recall(v)
	if v.current && v.site.parent != "" && errors.Is(v.failure, sdn.ErrInvalid) {
		r.sites.parents.doubt(req.Node) // maybe the machine has another port by now
	}
	return v, nil
}

// isFailed reports whether the SDN refuses what a KuryrPort's spec says now. What
// it has refused before says nothing of that.
func isFailed(port *v1.KuryrPort) bool {
	ready := meta.FindStatusCondition(port.Status.Conditions, v1.ConditionReady)
	return port.Status.Phase == v1.PortFailed && (ready == nil || ready.ObservedGeneration == port.Generation || ready.Reason == v1.ReasonPortMissing)
}

// dropWritten forgets ports that arrived and have an object, whichever pool's:
// from then on that says what becomes of them.
func (r *pools) dropWritten(ctx context.Context, req pool.Ref) error {
	for _, id := range r.supply.Arrived(req) {
		err := r.client.Get(ctx, client.ObjectKey{Name: id}, &v1.KuryrPort{}, kube.ReadOnly)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading KuryrPort %s: %w", id, err)
		}
		if err == nil {
			r.supply.Recorded(req, id)
		}
	}
	return nil
}

// readPorts reads the pool's ports, and which pods have one of another.
func (r *pools) readPorts(ctx context.Context, v *view) (elsewhere map[types.UID]bool, err error) {
	list, err := kube.PortsOn(ctx, r.client, v.req.Node)
	for i := range list {
		if list[i].Spec.Pool == v.req.Pool {
			v.ports[list[i].Name] = &list[i]
		}
	}
	return holders(list, v.req.Pool), err
}

// holders returns the pods that have one of these ports, except for those of the
// pool that is named.
func holders(list []v1.KuryrPort, except string) map[types.UID]bool {
	held := map[types.UID]bool{}
	for i := range list {
		if ref := list[i].Spec.PodRef; ref != nil && list[i].Spec.Pool != except {
			held[ref.UID] = true
		}
	}
	return held
}

// sortPods finds the pods that want a port of this pool.
func (r *pools) sortPods(ctx context.Context, v *view, pods []corev1.Pod, elsewhere map[types.UID]bool) error {
	here := map[types.UID]bool{}
	for _, port := range v.ports {
		if port.Spec.PodRef != nil && port.DeletionTimestamp.IsZero() {
			here[port.Spec.PodRef.UID] = true
		}
	}
	for i := range pods {
		pod := &pods[i]
		if here[pod.UID] || elsewhere[pod.UID] || !pool.Wants(pod) {
			continue
		}
		leads, groups, err := v.leadsHere(ctx, pod)
		if err != nil {
			return err
		}
		if !leads {
			continue
		}
		if r.memory.claimed(pod.UID, v.req) {
			v.outrun = true
			continue
		}
		had, held, err := r.lostPort(ctx, v.req, pod)
		if err != nil {
			return err
		}
		if held {
			continue
		}
		v.waiting = append(v.waiting, pod)
		v.state.Pods = append(v.state.Pods, pool.Pod{
			Ref:     v1.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Interface: podInterface, Default: true},
			Created: pod.CreationTimestamp.Time,
			Restore: had,
			Groups:  groups,
		})
	}
	return nil
}

// leadsHere reports whether a pod is to have a port of this pool, and with which
// security groups, nil for the pool's. One of which that cannot be told waits.
func (v *view) leadsHere(ctx context.Context, pod *corev1.Pod) (leads bool, groups []string, err error) {
	if !v.current {
		return false, nil, nil
	}
	own, ok, err := v.site.own(ctx, pod.Namespace)
	if err != nil || !ok || own != v.key.Namespace {
		return false, nil, err
	}
	groups, ok, err = v.site.groups(ctx, pod, v.key.SecurityGroupIDs)
	return ok && err == nil, groups, err
}

// lostPort returns the port that pod is annotated with if it has no object. If
// it has one that is not the pod's, the annotation is nonsense. If it is the
// pod's the pod is held, and the cache about to show it: that of a new leader
// may know a pod before its port.
func (r *pools) lostPort(ctx context.Context, req pool.Ref, pod *corev1.Pod) (id string, held bool, err error) {
	id = kube.PortNamed(pod, podInterface)
	if id == "" {
		return "", false, nil
	}
	var port v1.KuryrPort
	if err := r.client.Get(ctx, client.ObjectKey{Name: id}, &port, kube.ReadOnly); !apierrors.IsNotFound(err) {
		return "", false, err
	}
	if r.supply.LookedUp(req, id) {
		return id, false, nil
	}
	err = r.live.Get(ctx, client.ObjectKey{Name: id}, &port)
	if apierrors.IsNotFound(err) {
		return id, false, nil
	}
	if err != nil {
		return "", false, fmt.Errorf("looking for KuryrPort %s of pod %s/%s: %w", id, pod.Namespace, pod.Name, err)
	}
	if ref := port.Spec.PodRef; ref == nil || ref.UID != pod.UID {
		return "", false, nil
	}
	r.wrote(req, id, write{version: port.ResourceVersion, pod: pod.UID})
	return "", true, nil
}

// recall adds what is remembered of the pool, and forgets what no longer matters.
func (r *pools) recall(v *view) {
	named := map[string]bool{}
	for i := range v.state.Pods {
		named[v.state.Pods[i].Restore] = true
	}
	known := r.supply.Look(v.req, func(id string) bool { return named[id] })
	v.arrived = known.Arrived
	for id, a := range known.Arrived {
		v.state.Arrived = append(v.state.Arrived, pool.Arrival{ID: id, For: a.Pod})
	}
	v.state.InFlight, v.state.Restoring = known.InFlight, known.Restoring
	v.state.Hold, v.failure, v.refilled, v.asked = known.Hold, known.Failure, known.Refilled, known.Asked
	for i := range v.state.Pods {
		if pod := &v.state.Pods[i]; known.NotFound[pod.Restore] {
			pod.Restore = ""
		}
	}
	now := r.Now()
	r.memory.with(v.req, func(p *poolMemory) { p.recallPods(v, now) })
}

func (p *poolMemory) recallPods(v *view, now time.Time) {
	waiting := map[types.UID]bool{}
	for i := range v.state.Pods {
		uid := v.state.Pods[i].Ref.UID
		waiting[uid] = true
		if _, ok := p.seen[uid]; !ok {
			p.seen[uid] = now
		}
	}
	keep(p.seen, func(uid types.UID) bool { return waiting[uid] })
	keep(p.told, func(uid types.UID) bool { return waiting[uid] })
	bound := map[types.UID]bool{}
	for _, port := range v.ports {
		if port.Spec.PodRef != nil {
			bound[port.Spec.PodRef.UID] = true
		}
	}
	keep(p.known, func(uid types.UID) bool { return bound[uid] })
}

func keep[K comparable, V any](m map[K]V, wanted func(K) bool) {
	for k := range m {
		if !wanted(k) {
			delete(m, k)
		}
	}
}

// home returns the pool of a port that arrived: one looked up may be of older
// settings than v's.
func (v *view) home(port *sdn.Port) string {
	if port.Owner.Kind == sdn.KindPool && port.Owner.Name != "" {
		return port.Owner.Name
	}
	return v.req.Pool
}

// setType gives port the type that its pool's key says. The SDN knows only its
// own, which a port that was looked up has. Of a pool that has no object any
// more nothing but the SDN's word is left.
func (r *pools) setType(ctx context.Context, v *view, port *sdn.Port) error {
	key := v.key
	if name := v.home(port); name != v.req.Pool {
		var object v1.KuryrPortPool
		err := r.client.Get(ctx, client.ObjectKey{Name: name}, &object, kube.ReadOnly)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading KuryrPortPool %s, whose port %s is: %w", name, port.ID, err)
		}
		key = &object.Spec.Key
	}
	if key != nil && key.VIFType != "" {
		port.VIF.Type = key.VIFType
	}
	return nil
}

// spec is the KuryrPort's spec of a port that arrived.
func (v *view) spec(port *sdn.Port, ref *v1.PodReference) v1.KuryrPortSpec {
	return v1.KuryrPortSpec{
		Pool: v.home(port), NodeName: v.req.Node, ProjectID: port.ProjectID, NetworkID: port.NetworkID,
		SecurityGroupIDs: slices.Clone(port.SecurityGroupIDs), VIF: port.VIF, PodRef: ref,
	}
}
