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

// readPool finds what the pool is for. If the settings no longer lead to it, it
// keeps nothing and gets nothing new: it ends with its last port.
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
		v.unsure = v.site.Blind
	}
	key, err := r.find(ctx, v, pods)
	if err != nil {
		return err
	}
	if key != nil {
		v.key, v.current = key, true
	}
	if !v.current && !v.unsure {
		return nil
	}
	if v.levels, err = v.site.Levels(ctx, *v.key); err != nil {
		return err
	}
	v.state.Levels = v.levels
	if v.unsure { // nothing is made, and nothing that is there goes
		v.state.Levels = pool.Levels{Batch: 1, TTL: forever, Cooldown: v.levels.Cooldown}
	}
	if v.unsure || v.object == nil && !v.site.Warm(v.key.Namespace) {
		v.state.Levels.Min = 0 // until the first pod comes, see report
	}
	return nil
}

// find returns the key of this name that the settings make, nil if they make
// none. That of an object says which it can be; else it is that of the node, or
// of one of the namespaces that may have a pool there.
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
	if err != nil {
		return nil, err
	}
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
	return nil, nil
}

// candidates returns the namespaces whose own pool this may be.
func (r *Reconciler) candidates(ctx context.Context, v *view, pods []corev1.Pod) ([]string, error) {
	switch {
	case !v.site.Rules.ByNamespace:
		return nil, nil
	case v.object != nil:
		return []string{v.key.Namespace}, nil
	}
	if name, ok := r.sites.Noted(v.req); ok {
		return []string{name}, nil
	}
	switch {
	case v.site.Rules.Pools.WarmUp.Namespaces:
		return r.namespaces(ctx)
	}
	var names []string
	for i := range pods {
		if !slices.Contains(names, pods[i].Namespace) {
			names = append(names, pods[i].Namespace)
		}
	}
	return names, nil
}

// namespaces returns the names of all.
func (r *Reconciler) namespaces(ctx context.Context) ([]string, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("NamespaceList"))
	if err := r.client.List(ctx, list, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing namespaces: %w", err)
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names, nil
}
