// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube_test

import (
	"context"
	"slices"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
)

// shelf is a manager whose cache has one KuryrNetwork, of namespace shop.
type shelf struct {
	ctrl.Manager
	reads   int
	handler toolscache.ResourceEventHandler
}

func (s *shelf) GetClient() client.Client { return shelfReader{s: s} }
func (s *shelf) GetCache() cache.Cache    { return shelfCache{s: s} }

func (s *shelf) GetFieldIndexer() client.FieldIndexer { return s }

// IndexField is that of client.FieldIndexer. The index is not used.
func (s *shelf) IndexField(context.Context, client.Object, string, client.IndexerFunc) error {
	return nil
}

type shelfReader struct {
	client.Client
	s *shelf
}

func (r shelfReader) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	r.s.reads++
	if key.Namespace != "shop" {
		return apierrors.NewNotFound(schema.GroupResource{Resource: "kuryrnetworks"}, key.Name)
	}
	o.SetName(key.Name)
	return nil
}

type shelfCache struct {
	cache.Cache
	s *shelf
}

func (c shelfCache) GetInformer(context.Context, client.Object, ...cache.InformerGetOption) (cache.Informer, error) {
	return shelfInformer{s: c.s}, nil
}

type shelfInformer struct {
	cache.Informer
	s *shelf
}

func (i shelfInformer) AddEventHandler(h toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	i.s.handler = h
	return nil, nil
}

// No KuryrNetwork is read before the cache has them. From then on each event is passed on.
func TestNetworks(t *testing.T) {
	s := &shelf{}
	n := kube.NewNetworks(s)
	var moved []string
	n.Follow(func(namespace string) { moved = append(moved, namespace) })
	if got, known, err := n.Of(t.Context(), "shop"); got != nil || known || err != nil || s.reads > 0 {
		t.Fatalf("before Serve: Of(shop) = %v, %t, %v after %d reads; want nothing, not known, and no read", got, known, err, s.reads)
	}
	if err := n.Serve(t.Context(), s); err != nil {
		t.Fatal(err)
	}
	if got, known, err := n.Of(t.Context(), "shop"); got == nil || got.Name != "shop" || !known || err != nil {
		t.Errorf("Of(shop) = %v, %t, %v; want KuryrNetwork shop", got, known, err)
	}
	if got, known, err := n.Of(t.Context(), "other"); got != nil || !known || err != nil {
		t.Errorf("Of(other) = %v, %t, %v; want that it is known to have none", got, known, err)
	}
	of := func(namespace string) *v1.KuryrNetwork {
		return &v1.KuryrNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace}}
	}
	s.handler.OnAdd(of("a"), true)
	s.handler.OnUpdate(of("b"), of("b"))
	s.handler.OnDelete(of("c"))
	s.handler.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: of("d")})
	if want := []string{"", "a", "b", "c", "d"}; !slices.Equal(moved, want) {
		t.Errorf("followers were told of %v, want %v", moved, want)
	}
}

// A status that nobody has compared with the cloud does not count, except the first that is read.
func TestNetworksAreSureOfStatuses(t *testing.T) {
	with := func(id string) *v1.KuryrNetwork {
		return &v1.KuryrNetwork{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "shop", UID: "u"}, Status: v1.KuryrNetworkStatus{NetworkID: id}}
	}
	n := kube.NewNetworks(&shelf{})
	moved := 0
	n.Follow(func(string) { moved++ })
	sure := func(when, id string, want bool) {
		t.Helper()
		if got := n.IsVerified(with(id)); got != want {
			t.Errorf("%s: IsVerified of network %s is %t", when, id, got)
		}
	}
	sure("no applier compares", "a", true)
	sure("no applier compares", "b", true)
	n.RequireVerification()
	sure("read first", "a", true)
	sure("edited", "b", false)
	n.MarkVerified(with("b"), &v1.KuryrNetworkStatus{NetworkID: "a"})
	if sure("to be corrected", "b", false); moved != 1 {
		t.Errorf("followers were told %d times", moved)
	}
	n.MarkVerified(with("a"), &v1.KuryrNetworkStatus{NetworkID: "c"})
	sure("written", "c", true)
	if sure("the cache does not show the write yet", "a", true); moved != 1 {
		t.Errorf("followers were told %d times, want no more of a write that has an event", moved)
	}
	n.MarkVerified(with("d"), &v1.KuryrNetworkStatus{NetworkID: "d"})
	if sure("edited, and found to be right", "d", true); moved != 2 {
		t.Errorf("followers were told %d times, want once more: no event follows", moved)
	}
}

// Before Serve a namespace may have a KuryrNetwork, unless the API server lacks them.
func TestNetworksThatAreLacking(t *testing.T) {
	s := &shelf{}
	n := kube.NewNetworks(s)
	var moved []string
	n.Follow(func(namespace string) { moved = append(moved, namespace) })
	if n.Lacking() {
		t.Error("Lacking before anything is known")
	}
	n.SetUnavailable()
	n.SetUnavailable()
	if !n.Lacking() || !slices.Equal(moved, []string{""}) {
		t.Errorf("after SetUnavailable: %t, followers were told of %q, want that once of all", n.Lacking(), moved)
	}
	if err := n.Serve(t.Context(), s); err != nil || n.Lacking() {
		t.Errorf("after Serve: Lacking is %t, %v", n.Lacking(), err)
	}
}
