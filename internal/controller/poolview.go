// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// releasedAnnotation on a free KuryrPort says when it was given back. One that
// never had a pod has none.
const releasedAnnotation = "kuryr.openstack.org/released-at"

// podInterface is the name of a pod's interface.
const podInterface = "eth0"

// view is what one reconcile of a pool has to do with. The objects are the
// cache's and not to be changed.
type view struct {
	req    poolRequest
	state  pool.State
	counts pool.Count

	key     *v1.PoolKey // nil if nothing says what the pool is for
	current bool        // the settings lead here
	object  *v1.KuryrPortPool
	ports   map[string]*v1.KuryrPort
	pods    map[types.UID]*corev1.Pod // all of the node
	waiting []*corev1.Pod
	arrived map[string]arrival

	failure  error
	refilled time.Time
	asked    int // ports that had been asked for up to then, ever
}

// observe reads all that a plan depends on.
func (r *pools) observe(ctx context.Context, req poolRequest) (*view, error) {
	v := &view{req: req, ports: map[string]*v1.KuryrPort{}, pods: map[types.UID]*corev1.Pod{}, arrived: map[string]arrival{}}
	settings := r.Settings.Load()
	if err := r.readPool(ctx, v, settings); err != nil {
		return nil, err
	}
	holders, err := r.readPorts(ctx, v)
	if err != nil {
		return nil, err
	}
	if err := r.readPods(ctx, v, settings, holders); err != nil {
		return nil, err
	}
	if err := r.judge(ctx, v); err != nil {
		return nil, err
	}
	err = r.client.Get(ctx, client.ObjectKey{Name: req.Node}, nodeMeta())
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading node %s: %w", req.Node, err)
	}
	v.state.NodeGone = apierrors.IsNotFound(err)
	if err := r.dropWritten(ctx, req); err != nil {
		return nil, err
	}
	r.recall(v)
	return v, nil
}

// isLost reports whether a KuryrPort says that the SDN has its port no more.
func isLost(port *v1.KuryrPort) bool {
	ready := meta.FindStatusCondition(port.Status.Conditions, v1.ConditionReady)
	return port.Status.Phase == v1.PortFailed && ready != nil && ready.Reason == reasonMissing
}

// dropWritten forgets ports that arrived and have an object, whichever pool's:
// from then on that says what becomes of them.
func (r *pools) dropWritten(ctx context.Context, req poolRequest) error {
	var ids []string
	r.memory.with(req, func(p *poolMemory) { ids = slices.Collect(maps.Keys(p.arrived)) })
	for _, id := range ids {
		err := r.client.Get(ctx, client.ObjectKey{Name: id}, &v1.KuryrPort{}, readOnly)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("reading KuryrPort %s: %w", id, err)
		}
		if err == nil {
			r.memory.discard(req, []string{id})
		}
	}
	return nil
}

// readPool finds what the pool is for. If the settings no longer lead to it, it
// keeps nothing and gets nothing new: it ends with its last port.
func (r *pools) readPool(ctx context.Context, v *view, s *Settings) error {
	var object v1.KuryrPortPool
	err := r.client.Get(ctx, client.ObjectKey{Name: v.req.Pool}, &object)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading KuryrPortPool %s: %w", v.req.Pool, err)
	}
	v.state.Levels = pool.Levels{Batch: 1}
	if err == nil {
		v.object = &object
		v.key = &object.Spec.Key
	}
	if key := pool.KeyOn(v.req.Node, s.key()); pool.Name(key) == v.req.Pool {
		v.key, v.current = &key, true
		v.state.Levels = s.levels()
		if v.object == nil {
			v.state.Levels.Min = 0 // until the first pod comes, see report
		}
	}
	return nil
}

// readPorts reads the pool's ports, and which pods have one, of whatever pool.
func (r *pools) readPorts(ctx context.Context, v *view) (holders map[types.UID]bool, err error) {
	var list v1.KuryrPortList
	if err := r.client.List(ctx, &list, client.MatchingFields{portNode: v.req.Node}, readOnly); err != nil {
		return nil, fmt.Errorf("listing KuryrPorts of node %s: %w", v.req.Node, err)
	}
	holders = map[types.UID]bool{}
	for i := range list.Items {
		port := &list.Items[i]
		if port.Spec.Pool == v.req.Pool {
			v.ports[port.Name] = port
		} else if port.Spec.PodRef != nil {
			holders[port.Spec.PodRef.UID] = true
		}
	}
	return holders, nil
}

// readPods reads the node's pods, and of them those that want a port of this pool.
func (r *pools) readPods(ctx context.Context, v *view, s *Settings, elsewhere map[types.UID]bool) error {
	var list corev1.PodList
	if err := r.client.List(ctx, &list, client.MatchingFields{podNode: v.req.Node}, readOnly); err != nil {
		return fmt.Errorf("listing pods of node %s: %w", v.req.Node, err)
	}
	here := map[types.UID]bool{}
	for _, port := range v.ports {
		if port.Spec.PodRef != nil && port.DeletionTimestamp.IsZero() {
			here[port.Spec.PodRef.UID] = true
		}
	}
	for i := range list.Items {
		pod := &list.Items[i]
		v.pods[pod.UID] = pod
		if here[pod.UID] || elsewhere[pod.UID] || !pool.Wants(pod) || !v.leadsHere(pod, s) || r.memory.claimed(pod.UID, v.req) {
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
		})
	}
	return nil
}

func (v *view) leadsHere(pod *corev1.Pod, s *Settings) bool {
	key, ok := pool.KeyFor(pod, s.key())
	return ok && pool.Name(key) == v.req.Pool
}

// lostPort returns the port that pod is annotated with if it has no object. If
// it has one that is not the pod's, the annotation is nonsense. If it is the
// pod's the pod is held, and the cache about to show it: that of a new leader
// may know a pod before its port.
func (r *pools) lostPort(ctx context.Context, req poolRequest, pod *corev1.Pod) (id string, held bool, err error) {
	id = portNamed(pod, podInterface)
	if id == "" {
		return "", false, nil
	}
	var port v1.KuryrPort
	if err := r.client.Get(ctx, client.ObjectKey{Name: id}, &port, readOnly); !apierrors.IsNotFound(err) {
		return "", false, err
	}
	if r.memory.lookedUp(req, id) {
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
	r.memory.wrote(req, id, write{version: port.ResourceVersion, pod: pod.UID})
	return "", true, nil
}

// judge turns the pool's ports into what a plan knows of them.
func (r *pools) judge(ctx context.Context, v *view) error {
	for _, port := range v.ports {
		p := portOf(port)
		p.Drifted = v.key != nil && !sameGroups(port.Spec.SecurityGroupIDs, v.key.SecurityGroupIDs)
		if ref := port.Spec.PodRef; ref != nil {
			pod, err := r.holder(ctx, v, ref)
			if err != nil {
				return err
			}
			p.Live = pod != nil && !pool.Finished(pod)
		}
		v.state.Ports = append(v.state.Ports, p)
	}
	return nil
}

// holder returns the pod that a port is bound to, nil if it is gone. A pod that
// this process has seen is gone when the cache says so. Of one that it never
// saw the cache may be too old to know, after a start: the API server is asked.
func (r *pools) holder(ctx context.Context, v *view, ref *v1.PodReference) (*corev1.Pod, error) {
	if pod := v.pods[ref.UID]; pod != nil {
		r.memory.with(v.req, func(p *poolMemory) { p.known[ref.UID] = true })
		return pod, nil
	}
	if r.memory.saw(v.req, ref.UID) {
		return nil, nil
	}
	var pod corev1.Pod
	err := r.live.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &pod)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("looking for pod %s/%s: %w", ref.Namespace, ref.Name, err)
	}
	if err == nil && pod.UID == ref.UID {
		return &pod, nil
	}
	r.memory.with(v.req, func(p *poolMemory) { p.known[ref.UID] = true })
	return nil, nil
}

func portOf(port *v1.KuryrPort) pool.Port {
	p := pool.Port{
		Name:     port.Name,
		Attached: port.Status.Attachment != nil,
		Ready:    port.Status.Phase == v1.PortAvailable && sameGroups(port.Status.AppliedSecurityGroupIDs, port.Spec.SecurityGroupIDs),
		Failed:   port.Status.Phase == v1.PortFailed,
		Lost:     isLost(port),
		Deleting: !port.DeletionTimestamp.IsZero(),
		Since:    port.CreationTimestamp.Time,
		Rested:   true,
	}
	if port.Spec.PodRef != nil {
		p.Pod = port.Spec.PodRef.UID
	}
	if released, ok := port.Annotations[releasedAnnotation]; ok {
		p.Rested = false
		if at, err := time.Parse(time.RFC3339Nano, released); err == nil {
			p.Since = at
		}
	}
	return p
}

// recall adds what is remembered of the pool, and forgets what no longer matters.
func (r *pools) recall(v *view) {
	now := r.Now()
	r.memory.with(v.req, func(p *poolMemory) {
		for id, a := range p.arrived {
			v.arrived[id] = a
			v.state.Arrived = append(v.state.Arrived, pool.Arrival{ID: id, For: a.pod})
		}
		v.state.InFlight = p.inFlight
		v.state.Restoring = map[string]bool{}
		for id := range p.restoring {
			v.state.Restoring[id] = true
		}
		p.recallPods(v, now)
		if p.failure != nil && len(v.waiting) == 0 && p.inFlight == 0 && !now.Before(p.hold) {
			p.failure, p.failures = nil, 0 // nobody asks any more
		}
		v.state.Hold, v.failure, v.refilled, v.asked = p.hold, p.failure, p.refilled, p.asked
	})
}

func (p *poolMemory) recallPods(v *view, now time.Time) {
	waiting := map[types.UID]bool{}
	named := map[string]bool{}
	for i := range v.state.Pods {
		pod := &v.state.Pods[i]
		waiting[pod.Ref.UID] = true
		if _, ok := p.seen[pod.Ref.UID]; !ok {
			p.seen[pod.Ref.UID] = now
		}
		named[pod.Restore] = true
		if p.vain[pod.Restore] {
			pod.Restore = ""
		}
	}
	keep(p.seen, func(uid types.UID) bool { return waiting[uid] })
	keep(p.told, func(uid types.UID) bool { return waiting[uid] })
	keep(p.vain, func(id string) bool { return named[id] })
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

func sameGroups(a, b []string) bool {
	return slices.Equal(slices.Compact(slices.Sorted(slices.Values(a))), slices.Compact(slices.Sorted(slices.Values(b))))
}

// home returns the pool of a port that arrived: one looked up may be of older
// settings than v's.
func (v *view) home(port *sdn.Port) string {
	if port.Owner.Kind == ownerKind && port.Owner.Name != "" {
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
		err := r.client.Get(ctx, client.ObjectKey{Name: name}, &object, readOnly)
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
