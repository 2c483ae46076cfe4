// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/cni"
)

// ports holds the last known KuryrPorts of the node. It informs calls that wait for a port of
// every change at once, without polling.
//
// It is a plain informer and not a cache of controller-runtime: it has one kind and one index,
// and the daemon runs on every node.
type ports struct {
	informer cache.SharedIndexInformer

	mu      sync.Mutex
	changed chan struct{} // closed at the next change
}

const podIndex = "pod"

func newPorts(from cache.ListerWatcher) *ports {
	p := &ports{changed: make(chan struct{})}
	p.informer = cache.NewSharedIndexInformerWithOptions(from, &v1.KuryrPort{}, cache.SharedIndexInformerOptions{
		Indexers: cache.Indexers{podIndex: func(obj any) ([]string, error) {
			if port, ok := obj.(*v1.KuryrPort); ok && port.Spec.PodRef != nil {
				return []string{port.Spec.PodRef.Namespace + "/" + port.Spec.PodRef.Name}, nil
			}
			return nil, nil
		}},
	})
	return p
}

// run keeps the ports up to date until ctx ends. It calls observe with every port that it sees,
// and gone with the name of each deleted port, one after the other.
func (p *ports) run(ctx context.Context, observe func(*v1.KuryrPort), gone func(name string)) error {
	if err := p.informer.SetTransform(slim); err != nil {
		return fmt.Errorf("watching KuryrPorts: %w", err)
	}
	seen := func(obj any) {
		if port, ok := obj.(*v1.KuryrPort); ok {
			observe(port)
		}
		p.notify()
	}
	deleted := func(obj any) {
		// Deletions during an outage of the API arrive as tombstones.
		if name, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			gone(name)
		}
		p.notify()
	}
	if _, err := p.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: seen, UpdateFunc: func(_, obj any) { seen(obj) }, DeleteFunc: deleted,
	}); err != nil {
		return fmt.Errorf("watching KuryrPorts: %w", err)
	}
	go func() {
		if cache.WaitFor(ctx, "", p.informer.HasSyncedChecker()) {
			p.notify()
		}
	}()
	p.informer.RunWithContext(ctx)
	return nil
}

// slim drops fields that the daemon never reads, before the informer stores the object.
func slim(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
		maps.DeleteFunc(m.GetAnnotations(), func(k, _ string) bool { return k != v1.BoundAnnotation })
		m.SetLabels(nil)
	}
	if port, ok := obj.(*v1.KuryrPort); ok {
		port.Status.Conditions = slices.DeleteFunc(port.Status.Conditions, func(c metav1.Condition) bool { return c.Type != v1.ConditionReady })
		for i := range port.Status.Conditions {
			// The daemon reads only whether the port is ready, and for which generation.
			port.Status.Conditions[i].Message = ""
		}
	}
	return obj, nil
}

func (p *ports) synced() bool { return p.informer.HasSynced() }

// next returns a channel that is closed at the next change.
func (p *ports) next() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.changed
}

func (p *ports) notify() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.changed)
	p.changed = make(chan struct{})
}

// port returns a KuryrPort by name, or nil. Callers must not change it.
func (p *ports) port(name string) *v1.KuryrPort {
	obj, ok, err := p.informer.GetIndexer().GetByKey(name)
	if err != nil || !ok {
		return nil
	}
	return obj.(*v1.KuryrPort)
}

// all returns the node's KuryrPorts. Callers must not change them.
func (p *ports) all() []*v1.KuryrPort { return kuryrPorts(p.informer.GetIndexer().List()) }

func kuryrPorts(objs []any) []*v1.KuryrPort {
	all := make([]*v1.KuryrPort, 0, len(objs))
	for _, obj := range objs {
		all = append(all, obj.(*v1.KuryrPort))
	}
	return all
}

// await returns the KuryrPort that is bound to the pod's interface, after it exists and has its
// security groups. It returns the cause of ctx if ctx ends before.
func (p *ports) await(ctx context.Context, pod cni.Args, ifName string) (port *v1.KuryrPort, err error) {
	err = p.until(ctx, func() bool {
		port = p.find(pod, ifName)
		return port != nil && p.synced() && port.Grouped()
	})
	return port, err
}

// until returns when done holds, and the cause of ctx if that ends before.
func (p *ports) until(ctx context.Context, done func() bool) error {
	for {
		changed := p.next() // before done, so that no change is missed
		if done() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// find returns the port for the pod's interface of this name. Runtimes choose the interface's
// name, so find falls back to the port of the pod's default route. Of several ports it returns the
// one that was bound last: a static pod whose mirror pod was made again may still have the port of
// the former mirror pod, and its UID does not distinguish the two.
func (p *ports) find(pod cni.Args, ifName string) *v1.KuryrPort {
	var other *v1.KuryrPort
	for _, port := range p.ofPod(pod) {
		if !bound(port, pod) {
			continue
		}
		if port.Spec.PodRef.Interface == ifName {
			return port
		}
		if port.Spec.PodRef.Default && other == nil {
			other = port
		}
	}
	return other
}

// ofPod returns the ports of all pods of this name, the one that was bound last first.
func (p *ports) ofPod(pod cni.Args) []*v1.KuryrPort {
	objs, _ := p.informer.GetIndexer().ByIndex(podIndex, pod.Pod()) // it fails only without the index
	found := kuryrPorts(objs)
	boundAt := func(port *v1.KuryrPort) time.Time {
		at, _ := time.Parse(time.RFC3339Nano, port.Annotations[v1.BoundAnnotation]) // absent: an earlier version bound it
		return at
	}
	slices.SortFunc(found, func(a, b *v1.KuryrPort) int {
		return cmp.Or(boundAt(b).Compare(boundAt(a)), strings.Compare(a.Name, b.Name))
	})
	return found
}

// bound reports whether the port belongs to the pod permanently. A port in deletion belongs to no
// pod: its address may soon be another pod's.
func bound(port *v1.KuryrPort, pod cni.Args) bool {
	ref := port.Spec.PodRef
	return port.DeletionTimestamp.IsZero() && ref != nil &&
		ref.Namespace == pod.Namespace && ref.Name == pod.Name && sameUID(pod.UID, string(ref.UID))
}

// apiUID matches UIDs made by the API server.
var apiUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// sameUID distinguishes pods of the same name. For a static pod the kubelet passes another UID
// than the API's: a hash without dashes. Then the pod's name is enough, because the node's name
// is part of it.
func sameUID(fromRuntime, fromAPI string) bool {
	return fromRuntime == fromAPI || !apiUID.MatchString(fromRuntime)
}

// whileBound returns a context that ends with errPodGone when the port is no longer bound to the
// pod.
func (p *ports) whileBound(ctx context.Context, name string, pod cni.Args) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		if p.until(ctx, func() bool { port := p.port(name); return port == nil || !bound(port, pod) }) == nil {
			cancel(errPodGone)
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// awaitActive returns when the KuryrPort says that the SDN passes the port's traffic. If
// neutron-openvswitch-agent wires the port, that must be for this container: what the SDN said before
// the agent wired the port for it is about an earlier one.
func (p *ports) awaitActive(ctx context.Context, name, containerID string) error {
	return p.until(ctx, func() bool {
		port := p.port(name)
		return port != nil && port.Status.Active && (!port.Spec.VIF.ByAgent() || port.Status.ActiveFor == containerID)
	})
}
