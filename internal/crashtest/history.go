// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package crashtest

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
)

// history is the complete history of some kinds of objects, from its start on.
type history struct {
	client client.WithWatch
	stop   context.CancelFunc
	done   sync.WaitGroup

	mu     sync.Mutex
	events []event
	last   map[types.UID]event
	broken error
}

// event is the state of an object after a change, or its last state.
type event struct {
	// etcd counts the changes of all kinds together, so versions order all objects.
	version uint64
	gone    bool
	object  client.Object
}

// follow begins a history with the existing objects.
func follow(ctx context.Context, c client.WithWatch, kinds []client.ObjectList) (*history, error) {
	ctx, stop := context.WithCancel(ctx)
	h := &history{client: c, stop: stop, last: map[types.UID]event{}}
	for _, list := range kinds {
		list := list.DeepCopyObject().(client.ObjectList)
		if err := c.List(ctx, list); err != nil {
			stop()
			return nil, fmt.Errorf("listing %T: %w", list, err)
		}
		objects, err := meta.ExtractList(list)
		if err != nil {
			stop()
			return nil, fmt.Errorf("listing %T: %w", list, err)
		}
		for _, o := range objects {
			h.add(o.(client.Object), false)
		}
		from := metav1.ListOptions{ResourceVersion: list.GetResourceVersion()}
		w, err := c.Watch(ctx, list, &client.ListOptions{Raw: &from})
		if err != nil {
			stop()
			return nil, fmt.Errorf("watching %T: %w", list, err)
		}
		h.done.Go(func() { h.take(ctx, w) })
	}
	return h, nil
}

func (h *history) take(ctx context.Context, w watch.Interface) {
	defer w.Stop()
	for e := range w.ResultChan() {
		object, ok := e.Object.(client.Object)
		if !ok || e.Type == watch.Error {
			h.breakOff(fmt.Errorf("watching: %v", e.Object))
			return
		}
		h.add(object, e.Type == watch.Deleted)
	}
	if ctx.Err() == nil {
		h.breakOff(fmt.Errorf("the API server ended a watch"))
	}
}

func (h *history) breakOff(err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = cmp.Or(h.broken, err)
}

func (h *history) add(object client.Object, gone bool) {
	version, err := strconv.ParseUint(object.GetResourceVersion(), 10, 64)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.broken = cmp.Or(h.broken, err)
	e := event{version: version, gone: gone, object: object}
	h.events = append(h.events, e)
	h.last[object.GetUID()] = e
}

// current returns the existing objects as far as known, sorted by name.
func (h *history) current() (all []client.Object) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, e := range h.last {
		if !e.gone {
			all = append(all, e.object)
		}
	}
	slices.SortFunc(all, func(a, b client.Object) int { return strings.Compare(a.GetName(), b.GetName()) })
	return all
}

// shows reports whether the history includes the write that left o as it is, or a later one. For
// a deletion, it reports whether the deletion is known to have begun.
func (h *history) shows(o client.Object, deleted bool) (bool, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, there := h.last[o.GetUID()]
	if !there || e.gone || deleted {
		return there && (e.gone || !e.object.GetDeletionTimestamp().IsZero()), h.broken
	}
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	return e.version >= version, cmp.Or(h.broken, err)
}

// knew reports whether a KuryrPort of that name has ever existed.
func (h *history) knew(name string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.ContainsFunc(h.events, func(e event) bool {
		port, is := e.object.(*v1.KuryrPort)
		return is && port.Name == name
	})
}

// close ends the watches.
func (h *history) close() {
	h.stop()
	h.done.Wait()
}

// completed waits until the history includes the current state of the objects.
func (h *history) completed(ctx context.Context, kinds []client.ObjectList) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var g errgroup.Group
	for _, list := range kinds {
		// Each kind needs a list of its own. A list waits until the API server's cache has caught
		// up with etcd, which it checks ten times a second.
		list := list.DeepCopyObject().(client.ObjectList)
		g.Go(func() error {
			if err := h.client.List(ctx, list); err != nil {
				return fmt.Errorf("listing %T: %w", list, err)
			}
			for !h.contains(list) {
				select {
				case <-ctx.Done():
					return fmt.Errorf("waiting for the history of %T: %w", list, ctx.Err())
				case <-time.After(time.Millisecond):
				}
			}
			return nil
		})
	}
	err := g.Wait()
	h.mu.Lock()
	defer h.mu.Unlock()
	return cmp.Or(h.broken, err)
}

// contains reports whether the history includes everything in list, or later states.
func (h *history) contains(list client.ObjectList) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	at, _ := strconv.ParseUint(list.GetResourceVersion(), 10, 64)
	there := map[types.UID]bool{}
	for _, o := range objects(list) {
		there[o.GetUID()] = true
		version, _ := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
		if e, known := h.last[o.GetUID()]; !known || e.version < version {
			return false
		}
	}
	kind := itemType(list)
	for uid, e := range h.last {
		if reflect.TypeOf(e.object) == kind && !e.gone && !there[uid] && e.version <= at {
			return false
		}
	}
	return true
}

// itemType returns the type of list's items, as objects returns them.
func itemType(list client.ObjectList) reflect.Type {
	items, _ := reflect.TypeOf(list).Elem().FieldByName("Items")
	return reflect.PointerTo(items.Type.Elem())
}

func objects(list client.ObjectList) (out []client.Object) {
	items, _ := meta.ExtractList(list)
	for _, o := range items {
		out = append(out, o.(client.Object))
	}
	return out
}

// State is the objects that existed at one moment, by UID.
type State map[types.UID]client.Object

// Rule checks a state that has just arisen because old became now. old is nil for a new object,
// now is nil for a deleted one. It returns the violations.
type Rule func(s State, old, now client.Object) []string

// check replays the history in the order of its versions. It returns the violations of the rules,
// each once.
func (h *history) check(rules ...Rule) (faults []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortStableFunc(h.events, func(a, b event) int { return cmp.Compare(a.version, b.version) })
	s := State{}
	for _, e := range h.events {
		uid := e.object.GetUID()
		old, now := s[uid], e.object
		s[uid] = now
		if e.gone {
			delete(s, uid)
			now = nil
		}
		for _, rule := range rules {
			for _, fault := range rule(s, old, now) {
				if !slices.Contains(faults, fault) {
					faults = append(faults, fault)
				}
			}
		}
	}
	return faults
}
