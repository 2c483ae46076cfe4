// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/plan/group"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// judge turns the pool's ports into what a plan knows of them.
func (r *pools) judge(ctx context.Context, v *view) error {
	for _, port := range v.ports {
		p := portOf(port)
		var live *corev1.Pod
		if ref := port.Spec.PodRef; ref != nil {
			pod, err := r.holder(ctx, v, ref)
			if err != nil {
				return err
			}
			if pod != nil && !pool.Finished(pod) {
				live, p.Live = pod, true
			}
		}
		var more []string
		if live != nil {
			var err error
			if more, err = r.grants.Of(ctx, port); err != nil {
				return err
			}
		}
		if err := v.compare(ctx, port, live, more, &p); err != nil {
			return err
		}
		v.state.Ports = append(v.state.Ports, p)
	}
	return nil
}

// compare tells whether a port's security groups are those that its pod is to
// have, or, while it has none, the pool's; more are those that it has as a member of
// load balancers. What cannot be told stays as it is.
func (v *view) compare(ctx context.Context, port *v1.KuryrPort, pod *corev1.Pod, more []string, p *pool.Port) error {
	var own []string
	if v.key != nil {
		own = v.key.SecurityGroupIDs
	}
	want, known := own, v.key != nil
	if pod != nil {
		groups, ok, err := v.site.groups(ctx, pod, own)
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
		v.groups[port.Name], v.grants[port.Name] = want, more
	}
	// Refused for the groups of a pod: given back it has the pool's, and is
	// as good as any.
	if p.Pod != "" && v.key != nil && !v1.SameGroups(port.Spec.SecurityGroupIDs, own) && !p.Lost {
		p.Failed = false
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
	if r.memory.Saw(v.req, ref.UID) {
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
		Ready:    port.Status.Phase == v1.PortAvailable && port.Grouped(),
		Failed:   isFailed(port),
		Stuck:    port.InDoubt(),
		Lost:     port.Lost(),
		Deleting: !port.DeletionTimestamp.IsZero(),
		Since:    port.CreationTimestamp.Time,
		Rested:   true,
	}
	if port.Spec.PodRef != nil {
		p.Pod = port.Spec.PodRef.UID
	}
	if released, ok := port.Annotations[v1.ReleasedAnnotation]; ok {
		p.Rested = false
		if at, err := time.Parse(time.RFC3339Nano, released); err == nil {
			p.Since = at
		}
	}
	return p
}
