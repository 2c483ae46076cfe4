// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// Key is what has one owner among the controller processes at a time: all work on a node, on a
// namespace, or of a task.
type Key struct{ Kind, Name string }

// OnNode returns the key of a node's pods, ports and pools.
func OnNode(node string) Key { return Key{"node", node} }

// InNamespace returns the key of a namespace's Services and networks.
func InNamespace(namespace string) Key { return Key{"namespace", namespace} }

// Task returns the key of what one process does for the whole cluster.
func Task(name string) Key { return Key{"task", name} }

// Keys reports whether a key is among some keys.
type Keys func(Key) bool

// Shards says which keys this process owns. Work on other keys is not begun: no object of theirs is
// written, and nothing is asked for in the cloud. Its methods are safe for concurrent use, and do not
// wait.
type Shards interface {
	// Enter begins work on a key. If ok, no other process begins work on the key before leave was
	// called. leave must be called once, by any goroutine. It is not ok if another process owns the key
	// or is to own it, or if this process may be thought dead, as it could not renew its Lease.
	Enter(key Key) (leave func(), ok bool)
	// Finish is as Enter, and also ok for a key that is to be given away, as long as work on it is
	// under way. It is for what completes that work.
	Finish(key Key) (leave func(), ok bool)
	// Owns reports whether this process owns a key, even if it may not begin work now.
	Owns(key Key) bool
	// Share is the part of all keys that this process owns, from 0 to 1. The shares of all processes
	// are never more than 1 together.
	Share() float64
	// Members is the number of processes that own keys, at least 1.
	Members() int
	// Follow has functions called each time that the process gains or loses keys; one of them may be
	// nil. gained is called after work on the keys may begin, in order with lost. crashed means that the
	// last owner ended without a word: requests of its may still change something in the cloud. lost is
	// called after the last work on the keys has ended, and before another process may begin: what
	// memory has of them must be forgotten, as it will be wrong. Both must not wait for work on keys.
	Follow(gained func(ctx context.Context, keys Keys, crashed bool), lost func(keys Keys))
	// Cached says that the cache has all objects of a kind that Kuryr writes. From now on gained is called
	// after the cache shows what earlier owners wrote of them.
	Cached(kind client.ObjectList)
}

// Alone is the Shards of the only controller process: it owns all keys, always.
type Alone struct{}

// Enter implements Shards.
func (Alone) Enter(Key) (func(), bool) { return func() {}, true }

// Finish implements Shards.
func (Alone) Finish(Key) (func(), bool) { return func() {}, true }

// Owns implements Shards.
func (Alone) Owns(Key) bool { return true }

// Share implements Shards.
func (Alone) Share() float64 { return 1 }

// Members implements Shards.
func (Alone) Members() int { return 1 }

// Follow implements Shards.
func (Alone) Follow(func(context.Context, Keys, bool), func(Keys)) {}

// Cached implements Shards.
func (Alone) Cached(client.ObjectList) {}

// enterAgain is when a request of an own key is tried again that came while this process could not
// renew its Lease.
const enterAgain = time.Second

// Sharded returns r, reconciling only requests whose key this process owns. Other requests are
// dropped: the controller must watch Gained, which repeats them. key returns the key of a request; false
// if the request's object is gone. Then r only forgets it, whoever owned it.
//
// A request of a key that is to be given away is reconciled if r has an unfinished(request) method
// that says so: see Unfinished.
func Sharded[R comparable](s Shards, key func(context.Context, R) (Key, bool), r reconcile.TypedReconciler[R]) reconcile.TypedReconciler[R] {
	return reconcile.TypedFunc[R](func(ctx context.Context, req R) (ctrl.Result, error) {
		k, there := key(ctx, req)
		if !there {
			return r.Reconcile(ctx, req)
		}
		leave, ok := s.Enter(k)
		if last, may := r.(Unfinished[R]); !ok && may && last.Unfinished(req) {
			leave, ok = s.Finish(k)
		}
		if ok {
			defer leave()
			return r.Reconcile(ctx, req)
		}
		if s.Owns(k) {
			return ctrl.Result{RequeueAfter: enterAgain}, nil
		}
		return ctrl.Result{}, nil
	})
}

// Unfinished is implemented by reconcilers whose work outlives a Reconcile: the result of a request to
// the cloud is recorded by a later one.
type Unfinished[R comparable] interface {
	// Unfinished reports whether a request's next Reconcile completes what an earlier one began.
	Unfinished(req R) bool
}

// Gained returns a source of the requests whose keys the process has gained. all lists the requests
// of all objects of the cache, and of what else the reconciler works on. A controller with Sharded must
// watch it.
func Gained[R comparable](s Shards, key func(context.Context, R) (Key, bool), all func(context.Context) ([]R, error)) source.TypedSource[R] {
	return source.TypedFunc[R](func(_ context.Context, q workqueue.TypedRateLimitingInterface[R]) error {
		s.Follow(func(ctx context.Context, keys Keys, _ bool) {
			list, err := all(ctx)
			for err != nil && Pause(ctx, enterAgain) { // the cache has no index yet
				ctrl.LoggerFrom(ctx).Info("cannot list what this process has gained; trying again", "error", err.Error())
				list, err = all(ctx)
			}
			for _, req := range list {
				if k, there := key(ctx, req); there && keys(k) {
					q.Add(req)
				}
			}
		}, nil)
		return nil
	})
}

// KeyOf returns the key of an object: the node of a pod or a KuryrPort, the namespace of any other.
func KeyOf(obj client.Object) Key {
	switch o := obj.(type) {
	case *corev1.Pod:
		return OnNode(o.Spec.NodeName)
	case *v1.KuryrPort:
		return OnNode(o.Spec.NodeName)
	}
	return InNamespace(obj.GetNamespace())
}

// ByObject returns the key of requests for objects of one kind. c reads from the cache; empty is an object
// of the kind without fields.
func ByObject(c client.Reader, empty client.Object) func(context.Context, ctrl.Request) (Key, bool) {
	return func(ctx context.Context, req ctrl.Request) (Key, bool) {
		obj := empty.DeepCopyObject().(client.Object)
		err := c.Get(ctx, req.NamespacedName, obj, ReadOnly)
		return KeyOf(obj), err == nil
	}
}

// AllOf returns what lists the requests of all objects of one kind, for Gained. c reads from the cache;
// empty is a list of the kind without items.
func AllOf(c client.Reader, empty client.ObjectList) func(context.Context) ([]ctrl.Request, error) {
	return func(ctx context.Context) ([]ctrl.Request, error) {
		all, err := All[client.Object](ctx, c, empty.DeepCopyObject().(client.ObjectList))
		return slices.Collect(maps.Keys(all)), err
	}
}

// CheckLater has check called, some time after the crash of another process, for the objects of a list's
// kind that this process took over and that are not settled. A last request of that process may change
// something in the cloud until then, and what cannot be rejected there must be put right. What is not
// settled is compared with the cloud at once, too, as after a start. later must be longer than any
// request. check must drop the requests of keys that are lost meanwhile.
func CheckLater[T client.Object](s Shards, c client.Reader, empty client.ObjectList, later func() time.Duration, settled func(T) bool, check func(ctrl.Request)) {
	s.Follow(func(ctx context.Context, keys Keys, crashed bool) {
		if !crashed {
			return
		}
		doubtful, err := All[T](ctx, c, empty.DeepCopyObject().(client.ObjectList))
		if err != nil {
			ctrl.LoggerFrom(ctx).Error(err, "cannot find what the process that has crashed was changing; periodic checks find late changes")
		}
		maps.DeleteFunc(doubtful, func(_ ctrl.Request, obj T) bool {
			return !keys(KeyOf(obj)) || obj.GetDeletionTimestamp().IsZero() && settled(obj)
		})
		time.AfterFunc(later(), func() {
			for req := range doubtful {
				check(req)
			}
		})
	}, nil)
}
