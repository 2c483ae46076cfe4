// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
)

// barrier makes sure that the caches show all that earlier owners of keys have written.
//
// It writes a marker, an annotation, on one object of each kind, and waits until the cache shows it: the events of
// a kind come in the order of its writes. So one marker is enough for all keys, whatever their number.
type barrier struct {
	client client.Client // reads from the cache
	live   client.Reader // past the cache
	name   string        // of the process
	serial atomic.Int64

	mu    sync.Mutex
	kinds []client.ObjectList
}

// add has the barrier wait for the cache of one more kind, that the cache has already.
func (b *barrier) add(kind client.ObjectList) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.kinds = append(b.kinds, kind)
}

// pass returns when the caches show all that was written before the call.
func (b *barrier) pass(ctx context.Context, gained kube.Keys) error {
	b.mu.Lock()
	kinds := b.kinds
	b.mu.Unlock()
	group, ctx := errgroup.WithContext(ctx)
	for _, kind := range kinds {
		group.Go(func() error { return b.mark(ctx, kind.DeepCopyObject().(client.ObjectList), gained) })
	}
	return group.Wait()
}

// mark writes the marker on an object of a kind, and waits until the cache shows it or the object's deletion. If
// there is no object, there is nothing that the cache may lack.
func (b *barrier) mark(ctx context.Context, list client.ObjectList, gained kube.Keys) error {
	err := b.client.List(ctx, list, kube.ReadOnly)
	if err == nil && meta.LenList(list) == 0 {
		err = b.live.List(ctx, list, client.Limit(1))
	}
	if err != nil || meta.LenList(list) == 0 {
		return err
	}
	obj, err := b.choose(list, gained)
	if err != nil {
		return err
	}
	want := b.name + " " + strconv.FormatInt(b.serial.Add(1), 10)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{v1.ShownAnnotation: want}}})
	if err == nil {
		err = b.client.Patch(ctx, obj, client.RawPatch(types.MergePatchType, patch), kube.OwnerShard)
	}
	if err = client.IgnoreNotFound(err); err != nil {
		return fmt.Errorf("marking %s %s, to see that the cache is not behind: %w", obj.GetObjectKind().GroupVersionKind().Kind, obj.GetName(), err)
	}
	key, from := client.ObjectKeyFromObject(obj), obj.GetResourceVersion()
	for wait := 2 * time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		err := b.client.Get(ctx, key, obj, kube.ReadOnly)
		if err != nil || obj.GetAnnotations()[v1.ShownAnnotation] == want || kube.Older(from, obj.GetResourceVersion()) {
			return client.IgnoreNotFound(err)
		}
		if !kube.Pause(ctx, wait) {
			return ctx.Err()
		}
	}
}

// choose returns a copy of an object of a list, rather a gained one: a marker makes another owner's next write of
// the object fail, and it has to repeat that.
func (b *barrier) choose(list client.ObjectList, gained kube.Keys) (chosen client.Object, err error) {
	own := false
	err = meta.EachListItem(list, func(o runtime.Object) error {
		if obj := o.(client.Object); chosen == nil || !own {
			own = gained(kube.KeyOf(obj))
			if chosen == nil || own {
				chosen = obj
			}
		}
		return nil
	})
	return chosen.DeepCopyObject().(client.Object), err
}
