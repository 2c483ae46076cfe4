// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package pools

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// forever is longer than any port lives.
const forever = 10 * 365 * 24 * time.Hour

// readPool finds the pool's key and levels. A pool to which the settings do not lead any more
// keeps no free ports and gets no new ones: it ends with its last port.
func (r *Reconciler) readPool(ctx context.Context, v *view, pods []corev1.Pod) error {
	var object v1.KuryrPortPool
	err := r.client.Get(ctx, client.ObjectKey{Name: v.req.Pool}, &object)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("reading KuryrPortPool %s: %w", v.req.Pool, err)
	}
	v.state.Levels = pool.Levels{Batch: 1}
	if err == nil {
		v.object = &object
		v.key = &object.Spec.Key
		v.unsure = v.site.ParentUnknown
	}
	key, err := r.find(ctx, v, pods)
	if err != nil {
		return err
	}
	if key != nil {
		v.key, v.current = key, true
	}
	v.unsure = v.unsure || key == nil && v.object != nil && v.site.Stays(v.key)
	if !v.current && !v.unsure {
		return nil
	}
	if v.levels, err = v.site.Levels(ctx, *v.key); err != nil {
		return err
	}
	v.state.Levels = v.levels
	if v.unsure { // no port is created, and no free port deleted
		v.state.Levels = pool.Levels{Batch: 1, TTL: forever, Cooldown: v.levels.Cooldown}
	}
	if v.unsure || v.object == nil && !v.site.Warm(v.key.Namespace) {
		v.state.Levels.Min = 0 // until the first pod exists, see report
	}
	return nil
}

// find returns the key of the settings that gives a pool of this name; nil if none does. It
// tries the namespace of the object's key. Without an object it tries the pool of the node, and
// those of the namespaces that may have a pool on the node.
func (r *Reconciler) find(ctx context.Context, v *view, pods []corev1.Pod) (*v1.PoolKey, error) {
	try := func(own string) *v1.PoolKey {
		if key, ok := v.site.Key(own); ok && pool.Name(key) == v.req.Pool {
			return &key
		}
		return nil
	}
	if v.object == nil || v.key.Namespace == "" {
		if key := try(""); key != nil || v.object != nil {
			return key, nil
		}
	}
	names, err := r.candidates(ctx, v, pods)
	for _, name := range names {
		own, ok, err := v.site.Own(ctx, name)
		if err != nil {
			return nil, err
		}
		if ok && own != "" {
			if key := try(own); key != nil {
				return key, nil
			}
		}
	}
	return nil, err
}

// candidates returns the namespaces that this pool may belong to. The pool of a namespace that has
// no pods on the node may have lost its object: then it may belong to any.
func (r *Reconciler) candidates(ctx context.Context, v *view, pods []corev1.Pod) (names []string, err error) {
	if v.object != nil {
		return []string{v.key.Namespace}, nil
	}
	for i := range pods {
		if !slices.Contains(names, pods[i].Namespace) {
			names = append(names, pods[i].Namespace)
		}
	}
	var all metav1.PartialObjectMetadataList
	all.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := r.client.List(ctx, &all, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	for i := range all.Items {
		names = append(names, all.Items[i].Name)
	}
	return names, nil
}
