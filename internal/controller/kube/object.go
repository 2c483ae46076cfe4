// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Object reads and writes the objects of one kind: their spec for the reconciler that plans the kind, and
// their finalizer, metadata and status for the one that applies it.
//
// Object remembers its last write of each object until the cache shows that write. So no decision
// is based on an object's state before the write. Its methods are safe for concurrent use, if one
// worker at a time uses a given object.
type Object[T client.Object] struct {
	// Live reads past the cache, of a kind that this process creates objects of. nil: others create them.
	Live client.Reader
	// Versioned has Report fail with a conflict if the API server has another version of the object. A
	// status that has to keep the ID of what was just made must be written without it.
	Versioned bool

	client    client.Client
	empty     T
	kind      string
	owner     client.FieldOwner
	finalizer string
	last      sync.Map // the last own write of each object until the cache shows it: ownWrite by key
}

// NewObject returns an Object for a kind. empty is an object of that kind without fields. c reads
// from the cache. owner is the field owner of all writes.
func NewObject[T client.Object](c client.Client, empty T, kind string, owner client.FieldOwner, finalizer string) *Object[T] {
	return &Object[T]{client: c, empty: empty, kind: kind, owner: owner, finalizer: finalizer}
}

// State says how the cache shows an object.
type State int

const (
	// Current is an object with all writes of this process.
	Current State = iota
	// Behind is an object without the last write of this process. The event of that write follows. Get
	// returns it only with an error.
	Behind
	// Leaving is an object whose finalizer this process has removed. The event of its deletion
	// follows.
	Leaving
	// Gone is an object that the cache does not have.
	Gone
)

// shownWithin is how long Get waits for the cache, which usually shows a write within milliseconds.
const shownWithin = time.Second

// Get returns a copy of an object of the cache. The copy may be used only if the object is Current.
// Get waits until the cache shows the last write of this process; it fails if that takes long. It
// forgets the last write of an object that is Gone. An object that this process has written, and
// that the cache does not show at all, is Behind as long as the API server has it.
func (o *Object[T]) Get(ctx context.Context, key types.NamespacedName) (obj T, state State, err error) {
	for until, live := time.Now().Add(shownWithin), o.Live; ; live = nil {
		obj, state, err = o.read(ctx, key, live)
		if err != nil || state != Behind {
			return obj, state, err
		}
		if time.Now().After(until) || !Pause(ctx, shownWithin/100) {
			return obj, Behind, fmt.Errorf("the cache does not show the last write of %s %s yet", o.kind, name(key))
		}
	}
}

// read is Get without the wait. live tells of an object that the cache does not show whether it is gone;
// nil: it is Behind.
func (o *Object[T]) read(ctx context.Context, key types.NamespacedName, live client.Reader) (obj T, state State, err error) {
	obj = o.empty.DeepCopyObject().(T) // type T
	err = o.client.Get(ctx, key, obj)
	// If the cache has no such object, the write has created it, or somebody has deleted it since.
	unseen := apierrors.IsNotFound(err) && o.Live != nil && o.written(key).version != ""
	if unseen {
		err = nil
	}
	if unseen && live != nil {
		err = live.Get(ctx, key, o.empty.DeepCopyObject().(T)) // type T
	}
	switch {
	case apierrors.IsNotFound(err):
		o.last.Delete(key)
		return obj, Gone, nil
	case err != nil:
		return obj, Behind, fmt.Errorf("reading %s %s: %w", o.kind, name(key), err)
	case unseen:
		return obj, Behind, nil
	}
	return obj, o.state(obj), nil
}

// Wrote records the last write of an object, which must have its new version. A process that has
// just gained the object's key may record those of the process before.
func (o *Object[T]) Wrote(obj T) {
	o.last.Store(client.ObjectKeyFromObject(obj), ownWrite{version: obj.GetResourceVersion()})
}

// Forget drops what is remembered of the objects in lost namespaces: another process writes them now.
func (o *Object[T]) Forget(lost Keys) {
	o.last.Range(func(key, _ any) bool {
		if lost(InNamespace(key.(types.NamespacedName).Namespace)) {
			o.last.Delete(key)
		}
		return true
	})
}

// Held reports whether an object has the finalizer.
func (o *Object[T]) Held(obj T) bool { return controllerutil.ContainsFinalizer(obj, o.finalizer) }

// Hold adds the finalizer to an object. It must be called before the first effect in the cloud.
func (o *Object[T]) Hold(ctx context.Context, obj T) error {
	if o.Held(obj) {
		return nil
	}
	return o.Patch(ctx, obj, func(obj T) { controllerutil.AddFinalizer(obj, o.finalizer) })
}

// Drop removes the finalizer from an object after the last effect in the cloud. Then the API server
// can delete the object. The cache may never show the version without the finalizer, only that the
// object is gone.
func (o *Object[T]) Drop(ctx context.Context, obj T) error {
	err := o.Patch(ctx, obj, func(obj T) { controllerutil.RemoveFinalizer(obj, o.finalizer) })
	if err == nil {
		o.last.Store(client.ObjectKeyFromObject(obj), ownWrite{dropped: obj.GetUID()})
	}
	return err
}

// Patch changes the metadata of an object, if the API server has the same version. It gives obj the
// new metadata. change gets an object that has metadata only. A deleted object is no error.
func (o *Object[T]) Patch(ctx context.Context, obj T, change func(T)) error {
	next := o.empty.DeepCopyObject().(T) // type T
	*metaOf(next) = *metaOf(obj).DeepCopy()
	old := next.DeepCopyObject().(T) // type T
	change(next)
	err := o.client.Patch(ctx, next, client.MergeFromWithOptions(old, client.MergeFromWithOptimisticLock{}), o.owner)
	if err = Lost(err); err != nil {
		return fmt.Errorf("writing metadata of %s %s: %w", o.kind, name(client.ObjectKeyFromObject(old)), err)
	}
	*metaOf(obj) = *metaOf(next)
	o.Wrote(obj)
	return nil
}

// Apply writes a spec by server-side apply. next is what the object is to be: is with that spec, or a
// new object if there is none. Apply gives next the API server's version. An object that was deleted
// meanwhile is a conflict: without its UID it would be made again.
//
// An apply leaves fields that another client has added. If it changes nothing for that reason, a patch
// removes them.
func (o *Object[T]) Apply(ctx context.Context, is, next T, spec any, owners ...metav1.OwnerReference) error {
	key := client.ObjectKeyFromObject(next)
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(spec)
	if err != nil {
		return fmt.Errorf("writing %s %s: %w", o.kind, name(key), err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{"spec": fields}}
	u.SetGroupVersionKind(v1.GroupVersion.WithKind(o.kind))
	u.SetNamespace(key.Namespace)
	u.SetName(key.Name)
	u.SetUID(next.GetUID())
	u.SetOwnerReferences(owners)
	if err := o.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), o.owner, client.ForceOwnership); err != nil {
		return fmt.Errorf("writing %s %s: %w", o.kind, name(key), err)
	}
	if next.GetResourceVersion() == u.GetResourceVersion() {
		err := o.client.Patch(ctx, next, client.MergeFromWithOptions(is, client.MergeFromWithOptimisticLock{}), o.owner)
		if err = Lost(err); err != nil {
			return fmt.Errorf("removing unplanned fields from %s %s: %w", o.kind, name(key), err)
		}
	} else {
		next.SetUID(u.GetUID())
		next.SetResourceVersion(u.GetResourceVersion())
		next.SetGeneration(u.GetGeneration())
	}
	o.Wrote(next)
	return nil
}

// Report writes the status of an object by server-side apply, if want differs from is. is is the
// part of the object's status that has this field owner. Report gives obj the new version, and
// reports whether the object still exists.
func (o *Object[T]) Report(ctx context.Context, obj T, is, want any) (there bool, err error) {
	if equality.Semantic.DeepEqual(is, want) {
		return true, nil
	}
	at := ""
	if o.Versioned {
		at = obj.GetResourceVersion()
	}
	version, err := applyStatus(ctx, o.client, obj, o.kind, want, o.owner, at)
	if version == "" || err != nil {
		return false, err
	}
	obj.SetResourceVersion(version)
	o.Wrote(obj)
	return true, nil
}

func metaOf(obj client.Object) *metav1.ObjectMeta {
	return obj.(metav1.ObjectMetaAccessor).GetObjectMeta().(*metav1.ObjectMeta) // as every type of an API has it
}

// name formats a key, without the slash if the key has no namespace.
func name(key types.NamespacedName) string {
	if key.Namespace == "" {
		return key.Name
	}
	return key.String()
}

// ownWrite is what the last own write of an object has made of it.
type ownWrite struct {
	version string
	dropped types.UID // UID of the object whose finalizer was removed
}

// written returns the last write of an object that the cache has not shown yet.
func (o *Object[T]) written(key types.NamespacedName) ownWrite {
	last, _ := o.last.Load(key)
	w, _ := last.(ownWrite)
	return w
}

// state returns how the cache, which shows obj, stands to the last write.
func (o *Object[T]) state(obj T) State {
	key := client.ObjectKeyFromObject(obj)
	switch last := o.written(key); {
	case last.dropped != "" && last.dropped == obj.GetUID():
		return Leaving
	case last.version != "" && Older(obj.GetResourceVersion(), last.version):
		return Behind
	}
	o.last.Delete(key)
	return Current
}
