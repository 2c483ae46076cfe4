// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package daemon

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/cni"
)

// ports is the node's KuryrPorts as last seen. It tells who waits for a port
// of every change at once; nobody polls.
//
// It is a bare informer rather than a cache of controller-runtime: one kind,
// one index, and the daemon runs on every node.
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

// run keeps the ports up to date until ctx ends. observe is called with every
// port that is seen, and gone with the name of each that is no more, one after
// the other.
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
		// What was missed while the API was away comes as a tombstone.
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

// slim drops what the daemon never reads, before it is kept.
func slim(obj any) (any, error) {
	if m, err := meta.Accessor(obj); err == nil {
		m.SetManagedFields(nil)
		m.SetAnnotations(nil)
		m.SetLabels(nil)
	}
	if port, ok := obj.(*v1.KuryrPort); ok {
		port.Status.Conditions = slices.DeleteFunc(port.Status.Conditions, func(c metav1.Condition) bool { return c.Type != v1.ConditionReady })
		for i := range port.Status.Conditions {
			port.Status.Conditions[i].Message = "" // whether it is ready, and by which spec, is what matters
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

// port returns a KuryrPort by name, or nil. It is not to be changed.
func (p *ports) port(name string) *v1.KuryrPort {
	obj, ok, err := p.informer.GetIndexer().GetByKey(name)
	if err != nil || !ok {
		return nil
	}
	return obj.(*v1.KuryrPort)
}

// all returns the node's KuryrPorts. They are not to be changed.
func (p *ports) all() []*v1.KuryrPort {
	objs := p.informer.GetIndexer().List()
	all := make([]*v1.KuryrPort, 0, len(objs))
	for _, obj := range objs {
		all = append(all, obj.(*v1.KuryrPort))
	}
	return all
}

// await returns the KuryrPort that is bound to the pod's interface as soon as
// there is one that has its security groups, and the cause of ctx if that ends before.
func (p *ports) await(ctx context.Context, pod cni.Args, ifName string) (*v1.KuryrPort, error) {
	for {
		changed := p.next() // before looking, so that no change is missed
		if port := p.find(pod, ifName); port != nil && p.synced() && port.Grouped() {
			return port, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// find returns the port for the pod's interface of this name, or, as runtimes
// name the interface as they like, the one for the pod's default route.
func (p *ports) find(pod cni.Args, ifName string) *v1.KuryrPort {
	var other *v1.KuryrPort
	for _, port := range p.ofPod(pod) {
		if !bound(port, pod) {
			continue
		}
		if port.Spec.PodRef.Interface == ifName {
			return port
		}
		if port.Spec.PodRef.Default {
			other = port
		}
	}
	return other
}

func (p *ports) ofPod(pod cni.Args) []*v1.KuryrPort {
	objs, err := p.informer.GetIndexer().ByIndex(podIndex, pod.Pod())
	if err != nil {
		return nil
	}
	found := make([]*v1.KuryrPort, 0, len(objs))
	for _, obj := range objs {
		found = append(found, obj.(*v1.KuryrPort))
	}
	return found
}

// bound says whether the port is the pod's, to stay. A port on its way out is
// nobody's any more: its address may be another's soon.
func bound(port *v1.KuryrPort, pod cni.Args) bool {
	ref := port.Spec.PodRef
	return port.DeletionTimestamp.IsZero() && ref != nil &&
		ref.Namespace == pod.Namespace && ref.Name == pod.Name && sameUID(pod.UID, string(ref.UID))
}

// apiUID is the form of a UID that the API server gives.
var apiUID = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// sameUID tells pods of the same name apart. The kubelet hands out another UID
// than the API's for a static pod: a hash without dashes, and then the name
// has to do (the node's name is part of it).
func sameUID(fromRuntime, fromAPI string) bool {
	return fromRuntime == fromAPI || !apiUID.MatchString(fromRuntime)
}

// whileBound returns a context that ends for errPodGone when the port is no
// longer bound to the pod.
func (p *ports) whileBound(ctx context.Context, name string, pod cni.Args) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		for {
			changed := p.next()
			if port := p.port(name); port == nil || !bound(port, pod) {
				cancel(errPodGone)
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, func() { cancel(context.Canceled) }
}

// awaitActive returns when the SDN is said to pass the port's traffic.
func (p *ports) awaitActive(ctx context.Context, name string) error {
	for {
		changed := p.next()
		if port := p.port(name); port != nil && port.Status.Active {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
