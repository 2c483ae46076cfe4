// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/pool"
)

// TestEachWriteFailsOnce lives through the lives of a few pods again and again,
// and the n-th write of the controller to the API server ends with an error,
// for every n: once without effect, once carried out, and once carried out and
// with a cache that does not show it for a while. At rest there is a port a
// pod and no other, and no port was deleted that a pod had or that was plugged.
func TestEachWriteFailsOnce(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 9
	}
	for name, kind := range map[string]*fault{
		"refused": {}, "answer lost": {carriedOut: true}, "answer lost and cache late": {carriedOut: true, late: true},
	} {
		t.Run(name, func(t *testing.T) {
			for n, more := 1, true; more; n += step {
				t.Run(fmt.Sprint("write ", n), func(t *testing.T) {
					f := &fault{at: n, carriedOut: kind.carriedOut, late: kind.late}
					live(t, f)
					what := f.failed()
					more = what != ""
					t.Logf("the write was: %s", what)
				})
			}
		})
	}
}

// fault lets one write fail.
type fault struct {
	at         int // the first is 1
	carriedOut bool
	late       bool // the cache shows for a while the KuryrPorts of before

	mu     sync.Mutex
	writes int
	what   string // the write that failed; empty: there were not so many
	before *v1.KuryrPortList
	nudge  func() // called when the cache is late no more
	nudges sync.WaitGroup
}

// failed returns which write failed. What is at rest may still count now and then.
func (f *fault) failed() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.what
}

// write carries out a write, or not.
func (f *fault) write(c client.Reader, what string, do func() error) error {
	f.mu.Lock()
	f.writes++
	hit := f.writes == f.at
	if hit {
		f.what = what
		f.fallBehind(c)
	}
	f.mu.Unlock()
	if hit && !f.carriedOut {
		return errLost
	}
	if err := do(); err != nil || !hit {
		return err
	}
	return errLost
}

// fallBehind makes the cache late. The events go on, which real ones do not, so
// they are made up for afterwards.
func (f *fault) fallBehind(c client.Reader) {
	if !f.late {
		return
	}
	f.before = &v1.KuryrPortList{}
	if err := c.List(context.Background(), f.before); err != nil {
		panic(err)
	}
	f.nudges.Go(func() {
		time.Sleep(200 * time.Millisecond)
		f.mu.Lock()
		f.before = nil
		f.mu.Unlock()
		f.nudge()
	})
}

func (f *fault) shown() *v1.KuryrPortList {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.before
}

func (f *fault) get(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	port, ok := obj.(*v1.KuryrPort)
	before := f.shown()
	if !ok || before == nil {
		return c.Get(ctx, key, obj, opts...)
	}
	for i := range before.Items {
		if before.Items[i].Name == key.Name {
			before.Items[i].DeepCopyInto(port)
			return nil
		}
	}
	return apierrors.NewNotFound(schema.GroupResource{Group: "openstack.org", Resource: "kuryrports"}, key.Name)
}

// list does not select: there is one node, and nothing else is selected by.
func (f *fault) list(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
	ports, ok := list.(*v1.KuryrPortList)
	before := f.shown()
	if !ok || before == nil {
		return c.List(ctx, list, opts...)
	}
	before.DeepCopyInto(ports)
	return nil
}

func (f *fault) funcs() interceptor.Funcs {
	return interceptor.Funcs{
		Get: f.get, List: f.list,
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return f.write(c, fmt.Sprintf("create %T", obj), func() error { return c.Create(ctx, obj, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return f.write(c, fmt.Sprintf("delete %T", obj), func() error { return c.Delete(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			data, _ := patch.Data(obj)
			return f.write(c, fmt.Sprintf("patch %T %s", obj, data), func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Apply: func(ctx context.Context, c client.WithWatch, obj runtime.ApplyConfiguration, opts ...client.ApplyOption) error {
			return f.write(c, "annotate a pod", func() error { return c.Apply(ctx, obj, opts...) })
		},
		SubResourceApply: func(ctx context.Context, c client.Client, sub string, obj runtime.ApplyConfiguration, opts ...client.SubResourceApplyOption) error {
			return f.write(c, fmt.Sprintf("apply %s of %s", sub, obj.(interface{ GetKind() string }).GetKind()), func() error { return c.SubResource(sub).Apply(ctx, obj, opts...) })
		},
	}
}

// live lets two pods live: one that finishes after its KuryrPort was deleted by
// hand, and one that has a port of those kept and is deleted.
func live(t *testing.T, f *fault) {
	b := idleBed(t)
	b.newClient = through(f.funcs())
	node := &plugs{b: b, plugged: map[string]bool{}}
	b.guard = node.guard
	f.nudge = b.nudge
	t.Cleanup(f.nudges.Wait)
	b.set(func(s *controller.Settings) {
		s.Pools.Min, s.Pools.Max, s.Pools.TTL = 1, 2, metav1.Duration{Duration: time.Hour}
		s.Orphans.Interval.Duration, s.Orphans.Grace.Duration = 50*time.Millisecond, 200*time.Millisecond
	})
	b.start()
	first := b.pod("first")
	port := b.bound(first)
	node.plug(port)
	b.settled(2)
	second := b.pod("second")
	other := b.bound(second)
	node.plug(other)
	b.delete(port)
	b.eventually("the KuryrPort is put back", func() bool {
		again := b.portOf(first)
		return again != nil && again.UID != port.UID && again.Status.Phase == v1.PortBound
	})
	node.plug(port) // as its daemon says again of the new object
	b.setPhase(first, corev1.PodSucceeded)
	node.unplug(port)
	b.settled(3)
	if got := b.portOf(second); got == nil || got.Name != other.Name {
		t.Errorf("the second pod has KuryrPort %v, want %s as before", got, other.Name)
	}
	b.delete(second)
	node.unplug(other)
	b.settled(2)
	b.set(func(s *controller.Settings) { s.Pools.Min, s.Pools.TTL.Duration = 0, 0 })
	b.settled(0)
}

// nudge makes an event of each KuryrPort, and wakes each pool.
func (b *bed) nudge() {
	var list v1.KuryrPortList
	if err := b.client.List(context.Background(), &list); err != nil {
		b.t.Error(err)
	}
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"nudged":"true"}}}`))
	for i := range list.Items {
		if err := b.client.Patch(context.Background(), &list.Items[i], patch); client.IgnoreNotFound(err) != nil {
			b.t.Error(err)
		}
	}
	b.settings.Set(*b.settings.Load())
}

// plugs is what a node's daemon has plugged.
type plugs struct {
	b       *bed
	mu      sync.Mutex
	plugged map[string]bool
}

func (p *plugs) plug(port *v1.KuryrPort)   { p.set(port, true) }
func (p *plugs) unplug(port *v1.KuryrPort) { p.set(port, false) }

func (p *plugs) set(port *v1.KuryrPort, plugged bool) {
	p.mu.Lock()
	p.plugged[port.Name] = plugged
	p.mu.Unlock()
	p.b.attach(port, plugged)
}

// guard reports a port that is deleted while it is in use.
func (p *plugs) guard(id string) {
	p.mu.Lock()
	plugged := p.plugged[id]
	p.mu.Unlock()
	if plugged {
		p.b.t.Errorf("port %s is deleted while it is plugged", id)
	}
	var port v1.KuryrPort
	err := p.b.client.Get(context.Background(), client.ObjectKey{Name: id}, &port)
	if apierrors.IsNotFound(err) || err == nil && port.Spec.PodRef == nil {
		return
	}
	var pod corev1.Pod
	ref := port.Spec.PodRef
	if err == nil {
		err = p.b.client.Get(context.Background(), client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name}, &pod)
	}
	if err == nil && pod.UID == ref.UID && !pool.Finished(&pod) {
		p.b.t.Errorf("port %s is deleted while pod %s has it", id, pod.Name)
	} else if client.IgnoreNotFound(err) != nil {
		p.b.t.Error(err)
	}
}
