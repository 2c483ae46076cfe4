// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
)

const finalizer = v1.PortFinalizer

// lateCache is a client of one KuryrPort. It reads the version that the test last let it show.
type lateCache struct {
	client.Client
	shown, stored *v1.KuryrPort // nil: the KuryrPort does not exist
	version       int
	writes        int
	named         string // version that the last write of a status named
	reads, after  int    // after so many reads it shows what is stored; 0: never
}

func (c *lateCache) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	if c.reads++; c.reads == c.after {
		c.show()
	}
	if c.shown == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "kuryrports"}, key.Name)
	}
	c.shown.DeepCopyInto(obj.(*v1.KuryrPort))
	return nil
}

func (c *lateCache) write(obj client.Object) error {
	if c.writes++; c.stored == nil {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "kuryrports"}, obj.GetName())
	}
	c.version++
	c.stored.ResourceVersion = fmt.Sprint(c.version)
	return nil
}

func (c *lateCache) Patch(_ context.Context, obj client.Object, _ client.Patch, _ ...client.PatchOption) error {
	if err := c.write(obj); err != nil {
		return err
	}
	c.stored.Finalizers = obj.GetFinalizers()
	c.stored.ObjectMeta.DeepCopyInto(&obj.(*v1.KuryrPort).ObjectMeta)
	return nil
}

func (c *lateCache) Status() client.SubResourceWriter { return lateStatus{c: c} }

type lateStatus struct {
	client.SubResourceWriter
	c *lateCache
}

func (s lateStatus) Apply(_ context.Context, obj runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	u := obj.(client.Object)
	s.c.named = u.GetResourceVersion()
	if err := s.c.write(u); err != nil {
		return err
	}
	u.SetResourceVersion(s.c.stored.ResourceVersion)
	return nil
}

// show lets the cache catch up.
func (c *lateCache) show() { c.shown = c.stored.DeepCopy() }

func newLateCache(uid types.UID) *lateCache {
	c := &lateCache{stored: &v1.KuryrPort{}, version: 7}
	c.stored.Name, c.stored.UID, c.stored.ResourceVersion = "p", uid, "7"
	c.show()
	return c
}

// bed is a late cache with an Object on it.
type bed struct {
	*testing.T
	*lateCache
	objects *kube.Object[*v1.KuryrPort]
}

func newBed(t *testing.T) *bed {
	t.Helper()
	c := newLateCache("u")
	return &bed{t, c, kube.NewObject(c, &v1.KuryrPort{}, "KuryrPort", kube.OwnerPort, finalizer)}
}

func (b *bed) get(want kube.State) *v1.KuryrPort {
	b.Helper()
	port, state, err := b.objects.Get(b.Context(), types.NamespacedName{Name: "p"})
	if (err != nil) != (want == kube.Behind) || state != want {
		b.Errorf("Get: state %v, error %v, want state %v", state, err, want)
	}
	return port
}

func (b *bed) wrote(err error, want int) {
	b.Helper()
	if err != nil || b.writes != want {
		b.Errorf("%d writes, error %v; want %d", b.writes, err, want)
	}
}

// No decision is based on an object's state before the last own write: Get waits for the cache.
func TestObjectIsNotShownBehindOwnWrites(t *testing.T) {
	synctest.Test(t, objectIsNotShownBehindOwnWrites)
}

func objectIsNotShownBehindOwnWrites(t *testing.T) {
	b := newBed(t)
	port := b.get(kube.Current)
	b.wrote(b.objects.Hold(t.Context(), port), 1)
	b.get(kube.Behind)
	b.wrote(b.objects.Hold(t.Context(), port), 1) // it has the finalizer already
	b.show()
	port = b.get(kube.Current)
	if !b.objects.Held(port) {
		t.Error("the finalizer is missing")
	}
	is, want := v1.KuryrPortStatus{}, v1.KuryrPortStatus{Phase: v1.PortBound}
	there, err := b.objects.Report(t.Context(), port, &is, &want)
	b.wrote(err, 2)
	if !there || port.ResourceVersion != "9" {
		t.Errorf("there %v, version %s; want true and 9", there, port.ResourceVersion)
	}
	b.get(kube.Behind)
	b.after = b.reads + 3
	b.get(kube.Current)
	if there, err = b.objects.Report(t.Context(), port, &want, &want); !there {
		t.Error("an object whose status does not change is gone")
	}
	b.wrote(err, 2)
}

// An object whose finalizer was removed is not applied again while the cache still shows it.
// Another object of the same name is applied.
func TestObjectThatWasDroppedIsLeaving(t *testing.T) {
	b := newBed(t)
	port := b.get(kube.Current)
	b.wrote(b.objects.Hold(t.Context(), port), 1)
	b.show()
	b.wrote(b.objects.Drop(t.Context(), b.get(kube.Current)), 2)
	b.get(kube.Leaving)
	b.show()
	b.get(kube.Leaving)
	b.lateCache.shown = nil
	b.get(kube.Gone)
	*b.lateCache = *newLateCache("other")
	b.get(kube.Current)
}

// A new object is not taken for an earlier one of the same name whose deletion the cache has not
// shown.
func TestObjectOfAnotherUIDIsCurrent(t *testing.T) {
	b := newBed(t)
	b.wrote(b.objects.Drop(t.Context(), b.get(kube.Current)), 1)
	*b.lateCache = *newLateCache("other")
	b.get(kube.Current)
}

// A write to an object that is gone is no error.
func TestObjectThatIsGone(t *testing.T) {
	b := newBed(t)
	port := b.get(kube.Current)
	b.stored = nil
	b.wrote(b.objects.Hold(t.Context(), port), 1)
	there, err := b.objects.Report(t.Context(), port, nil, &v1.KuryrPortStatus{})
	b.wrote(err, 2)
	if there {
		t.Error("what is gone is there")
	}
}

// A versioned status names the version that it was computed from.
func TestReportOfAVersion(t *testing.T) {
	for _, versioned := range []bool{false, true} {
		b := newBed(t)
		b.objects.Versioned = versioned
		port := b.get(kube.Current)
		_, err := b.objects.Report(t.Context(), port, &v1.KuryrPortStatus{}, &v1.KuryrPortStatus{Phase: v1.PortBound})
		b.wrote(err, 1)
		if got, want := b.named, map[bool]string{true: "7"}[versioned]; got != want {
			t.Errorf("versioned %v: the write names version %q, want %q", versioned, got, want)
		}
	}
}
