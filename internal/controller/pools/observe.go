// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/sites"
	"github.com/kuryr-go/kuryr/internal/controller/supply"
	"github.com/kuryr-go/kuryr/internal/plan/group"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// view is what one reconcile of a pool works on. Its objects belong to the cache and must not
// be changed.
type view struct {
	req    pool.Ref
	state  pool.State
	counts pool.Count

	site             *sites.Site
	key              *v1.PoolKey         // nil if neither an object nor the settings have it
	current          bool                // the settings lead pods to this pool
	unsure           bool                // whether they do is not known yet
	levels           pool.Levels         // of the settings, also while the pool is not filled
	more             map[string][]string // by subnets of the key, others that an address may be of
	object           *v1.KuryrPortPool
	ports            map[string]*v1.KuryrPort
	others           []*v1.KuryrPort           // bound ports of the node's other pools
	pods             map[types.UID]*corev1.Pod // all of the node
	waiting          []*corev1.Pod
	refused          []*corev1.Pod       // pods that the node cannot run
	claims           []func()            // end the claims of waiting pods
	claimedElsewhere bool                // another pool has claimed a pod of this one
	groups           map[string][]string // security groups to write, by port that has drifted
	memberGroups     map[string][]string // of these, those of members of load balancers
	known            supply.Snapshot
	leftOut          string // routes that the pool's pods do not get, and why: see tellRoutes
}

// observe reads everything that a plan depends on.
func (r *Reconciler) observe(ctx context.Context, v *view) (err error) {
	if v.site, err = r.sites.On(ctx, v.req.Node); err != nil {
		return err
	}
	v.state.NodeGone = v.site.Node == nil
	pods, err := kube.PodsOn(ctx, r.client, v.req.Node)
	if err != nil {
		return err
	}
	for i := range pods {
		v.pods[pods[i].UID] = &pods[i]
	}
	if err := r.readPool(ctx, v, pods); err != nil {
		return err
	}
	if v.key != nil {
		if v.more, err = r.further.More(ctx, v.key.SubnetIDs); err != nil {
			return err
		}
	}
	elsewhere, err := r.readPorts(ctx, v)
	if err != nil {
		return err
	}
	if err := r.sortPods(ctx, v, pods, elsewhere); err != nil {
		return err
	}
	if err := r.assessPorts(ctx, v); err != nil {
		return err
	}
	if err := r.recall(ctx, v); err != nil {
		return err
	}
	if v.current && v.site.Parent != "" && errors.Is(v.known.Failure, sdn.ErrInvalid) {
		r.sites.ParentPorts.Recheck(v.req.Node) // the machine may have another port now
	}
	return nil
}

// isFailed reports whether the SDN refuses the current spec of a KuryrPort. A refusal of an
// earlier generation does not count.
func isFailed(port *v1.KuryrPort) bool {
	ready := meta.FindStatusCondition(port.Status.Conditions, v1.ConditionReady)
	return port.Status.Phase == v1.PortFailed && (ready == nil || ready.ObservedGeneration == port.Generation || ready.Reason == v1.ReasonPortMissing)
}

// readPorts reads the pool's ports, and returns the pods that have a port of another pool.
func (r *Reconciler) readPorts(ctx context.Context, v *view) (elsewhere map[v1.Claim]bool, err error) {
	list, err := kube.PortsOn(ctx, r.client, v.req.Node)
	for i := range list {
		if list[i].Spec.Pool == v.req.Pool {
			v.ports[list[i].Name] = &list[i]
		} else if list[i].Spec.PodRef != nil {
			v.others = append(v.others, &list[i])
		}
	}
	return holders(list, v.req.Pool), err
}

// holders returns the pods that have one of these ports, without the ports of one pool.
func holders(list []v1.KuryrPort, except string) map[v1.Claim]bool {
	held := map[v1.Claim]bool{}
	for i := range list {
		if ref := list[i].Spec.PodRef; ref != nil && list[i].Spec.Pool != except {
			held[ref.Claim()] = true
		}
	}
	return held
}

// sortPods finds the pods that want a port of this pool.
func (r *Reconciler) sortPods(ctx context.Context, v *view, pods []corev1.Pod, elsewhere map[v1.Claim]bool) error {
	here := map[v1.Claim]bool{}
	for _, port := range v.ports {
		if port.Spec.PodRef != nil && port.DeletionTimestamp.IsZero() {
			here[port.Spec.PodRef.Claim()] = true
		}
	}
	hasPort := func(pod *corev1.Pod) bool {
		claim := v1.Claim{UID: pod.UID, Interface: pool.Interface}
		return here[claim] || elsewhere[claim]
	}
	refused := v.site.Refused(pods, hasPort)
	for i := range pods {
		pod := &pods[i]
		if hasPort(pod) || !pool.Wants(pod) {
			continue
		}
		leads, groups, err := v.leadsHere(ctx, pod)
		if err != nil {
			return err
		}
		if !leads {
			continue
		}
		if refused[pod.UID] {
			v.refused = append(v.refused, pod)
			continue
		}
		had, err := r.lostPort(ctx, v.req, pod)
		if err != nil {
			return err
		}
		v.waiting = append(v.waiting, pod)
		v.state.Pods = append(v.state.Pods, pool.Pod{
			Ref:     v1.PodReference{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID, Interface: pool.Interface, Default: true},
			Created: pod.CreationTimestamp.Time,
			Restore: had,
			Groups:  groups,
		})
	}
	return r.claim(ctx, v)
}

// claim claims the waiting pods of a plan. It removes those that another pool has claimed, or has
// given a port meanwhile. Two pools want one pod only after a change of settings. A claim ends when
// the cache shows the port, so a pool that first claims and then reads the cache sees that port.
func (r *Reconciler) claim(ctx context.Context, v *view) error {
	if len(v.state.Pods) == 0 {
		return nil
	}
	theirs := map[v1.Claim]bool{}
	for i := range v.state.Pods {
		claim := v.state.Pods[i].Ref.Claim()
		if end, free := r.claims.Try(claim); free {
			v.claims = append(v.claims, end)
		} else {
			theirs[claim], v.claimedElsewhere = true, true
		}
	}
	list, err := kube.PortsOn(ctx, r.client, v.req.Node)
	maps.Copy(theirs, holders(list, v.req.Pool))
	v.state.Pods = slices.DeleteFunc(v.state.Pods, func(p pool.Pod) bool { return theirs[p.Ref.Claim()] })
	v.waiting = slices.DeleteFunc(v.waiting, func(p *corev1.Pod) bool {
		return theirs[v1.Claim{UID: p.UID, Interface: pool.Interface}]
	})
	return err
}

// leadsHere reports whether a pod gets a port of this pool, and with which security groups
// (nil: the pool's). A pod for which that is not known waits.
func (v *view) leadsHere(ctx context.Context, pod *corev1.Pod) (leads bool, groups []string, err error) {
	if !v.current {
		return false, nil, nil
	}
	own, ok, err := v.site.Own(ctx, pod.Namespace)
	if err != nil || !ok || own != v.key.Namespace {
		return false, nil, err
	}
	groups, ok, err = v.site.Groups(ctx, pod, v.key.SecurityGroupIDs)
	return ok && err == nil, groups, err
}

// assessPorts turns the pool's KuryrPorts into the ports of a plan.
func (r *Reconciler) assessPorts(ctx context.Context, v *view) error {
	held := map[v1.Claim]bool{}
	for _, port := range v.ports {
		p := portOf(port)
		on := port.Spec.VIF.ParentPortID
		p.Misplaced = on != "" && v.site.Parent != "" && on != v.site.Parent
		var live *corev1.Pod
		if ref := port.Spec.PodRef; ref != nil {
			pod, err := r.holder(ctx, v, ref)
			if err != nil {
				return err
			}
			if pod != nil && !pool.Finished(pod) {
				live, p.Live, held[ref.Claim()] = pod, true, true
			}
		}
		var more []string
		if live != nil {
			var err error
			if more, err = r.Groups.Of(ctx, port); err != nil {
				return err
			}
		}
		if err := v.compareGroups(ctx, port, live, more, &p); err != nil {
			return err
		}
		// A living pod keeps its port unchanged. The next pod gets a new port.
		p.Failed = p.Failed || v.current && live == nil && (v.elsewhere(&port.Spec.VIF) || r.subnets.outdated(&port.Spec.VIF, v.site.Network(v.key.Namespace)))
		v.state.Ports = append(v.state.Ports, p)
	}
	for _, port := range v.others {
		if held[port.Spec.PodRef.Claim()] {
			p := portOf(port)
			p.Live = true
			v.state.Elsewhere = append(v.state.Elsewhere, p)
		}
	}
	r.planOthers(v)
	return nil
}

// planOthers plans the pools that have given a port to a pod of this one, too: one of the ports goes back.
// It does so once for each such port, as a plugged port goes back only when it is unplugged.
func (r *Reconciler) planOthers(v *view) {
	var names []string
	for _, p := range v.state.Elsewhere {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	news, _ := r.news(v, reportedTwice, strings.Join(names, " "))
	for _, port := range v.others {
		if news && slices.Contains(names, port.Name) {
			r.Queue.Add(pool.Ref{Pool: port.Spec.Pool, Node: v.req.Node})
		}
	}
}

// compareGroups reports whether a port's security groups are the wanted ones. Wanted are the
// groups of its pod; while the port is free, those of the pool or of a rule. Added to these is
// more, the groups that it has as a member of load balancers. Groups stay as they are while the
// wanted ones are not known.
func (v *view) compareGroups(ctx context.Context, port *v1.KuryrPort, pod *corev1.Pod, more []string, p *pool.Port) error {
	var own []string
	if v.key != nil {
		own = v.key.SecurityGroupIDs
	}
	want, known := own, v.key != nil
	if pod == nil && port.Spec.PodRef == nil && v.ruled(port.Spec.SecurityGroupIDs) && !v1.SameGroups(port.Spec.SecurityGroupIDs, own) {
		want = v1.GroupSet(port.Spec.SecurityGroupIDs)
		p.Groups = want
	}
	if pod != nil {
		groups, ok, err := v.site.Groups(ctx, pod, own)
		if err != nil {
			return err
		}
		known = ok && (groups != nil || v.key != nil)
		if groups != nil {
			want = groups
		}
	}
	want, more = group.Join(want, more)
	if known && (!v1.SameGroups(port.Spec.SecurityGroupIDs, want) || !v1.SameGroups(group.MemberGroups(port), more)) {
		p.Drifted = true
		v.groups[port.Name], v.memberGroups[port.Name] = want, more
	}
	// The refusal is about the groups of a pod. A port that is given back gets the pool's
	// groups, and may be used again.
	if !p.Pod.IsZero() && v.key != nil && !v1.SameGroups(port.Spec.SecurityGroupIDs, own) && !p.Lost {
		p.Failed = false
	}
	return nil
}

// ruled reports whether a rule of the configuration gives pods these security groups. A
// free port may keep them, for the next such pod.
func (v *view) ruled(ids []string) bool {
	return slices.ContainsFunc(v.site.Rules.Pods.SecurityGroups, func(rule config.GroupRule) bool {
		return v1.SameGroups(rule.SecurityGroupIDs, ids)
	})
}

// holder returns the pod that a port is bound to; nil if the pod does not exist any more.
func (r *Reconciler) holder(ctx context.Context, v *view, ref *v1.PodReference) (*corev1.Pod, error) {
	if pod := v.pods[ref.UID]; pod != nil {
		r.memory.with(v.req, func(p *poolMemory) { p.known[ref.UID] = true })
		return pod, nil
	}
	return r.Holder(ctx, v.req, ref)
}

// Holder returns the pod to which a port of a pool is bound; nil if the pod does not exist any more.
// A pod that this process has seen is gone if the cache does not have it. After a start the cache may
// be too old for a pod that the process never saw: then the API server is asked.
func (r *Reconciler) Holder(ctx context.Context, req pool.Ref, ref *v1.PodReference) (*corev1.Pod, error) {
	for _, reader := range []client.Reader{r.client, r.live} {
		var pod corev1.Pod
		err := reader.Get(ctx, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &pod)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("looking for pod %s/%s: %w", ref.Namespace, ref.Name, err)
		}
		if err == nil && pod.UID == ref.UID {
			return &pod, nil
		}
		seen := false
		if r.memory.with(req, func(p *poolMemory) { seen = p.known[ref.UID] }); seen {
			return nil, nil
		}
	}
	r.memory.with(req, func(p *poolMemory) { p.known[ref.UID] = true })
	return nil, nil
}

// portOf returns what a plan depends on of a KuryrPort alone, without its pod and its pool.
func portOf(port *v1.KuryrPort) pool.Port {
	p := pool.Port{
		Name:     port.Name,
		Attached: port.Status.Attachment != nil,
		Ready:    port.Status.Phase == v1.PortAvailable && port.Grouped(),
		Failed:   isFailed(port),
		Stuck:    port.InDoubt(),
		Lost:     port.Lost(),
		Deleting: !port.DeletionTimestamp.IsZero(),
		Since:    port.CreationTimestamp.Time,
		Rested:   true,
	}
	if port.Spec.PodRef != nil {
		p.Pod = port.Spec.PodRef.Claim()
	}
	if released, ok := port.Annotations[v1.ReleasedAnnotation]; ok {
		p.Rested = false
		if at, err := time.Parse(time.RFC3339Nano, released); err == nil {
			p.Since = at
		}
	}
	return p
}
