// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package networks_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/recorder"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/config"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/networks"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// cluster is a manager with a cache, which is indexed as the manager's is. It counts the objects
// that lists return. No write reaches it.
type cluster struct {
	ctrl.Manager
	stores map[reflect.Type]toolscache.Indexer
	listed map[reflect.Type]int
	mu     sync.Mutex
	writes int
}

func newCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{stores: map[reflect.Type]toolscache.Indexer{}, listed: map[reflect.Type]int{}}
	for _, obj := range []client.Object{kube.NamespaceMeta(), &corev1.Pod{}, &corev1.Node{}, &v1.KuryrNetwork{}, &v1.KuryrPort{}, &v1.KuryrPortPool{}} {
		c.stores[reflect.TypeOf(obj)] = toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{
			toolscache.NamespaceIndex: toolscache.MetaNamespaceIndexFunc,
		})
	}
	ctx := context.Background()
	for _, index := range []func() error{
		func() error { return networks.Index(ctx, c) },
		func() error {
			return c.IndexField(ctx, &v1.KuryrPortPool{}, "spec.key.namespace", func(o client.Object) []string {
				return []string{o.(*v1.KuryrPortPool).Spec.Key.Namespace}
			})
		},
	} {
		if err := index(); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

func (c *cluster) GetClient() client.Client                                          { return reader{c: c} }
func (c *cluster) GetAPIReader() client.Reader                                       { return reader{c: c} }
func (c *cluster) GetFieldIndexer() client.FieldIndexer                              { return c }
func (c *cluster) GetEventRecorder(string) recorder.EventRecorder                    { return silent{} }
func (r reader) Status() client.SubResourceWriter                                    { return noStatus{c: r.c} }
func (c *cluster) has(obj client.Object)                                             { _ = c.stores[reflect.TypeOf(obj)].Add(obj) }
func (r reader) Create(context.Context, client.Object, ...client.CreateOption) error { return nil }

func (c *cluster) IndexField(_ context.Context, obj client.Object, field string, values client.IndexerFunc) error {
	return c.stores[reflect.TypeOf(obj)].AddIndexers(toolscache.Indexers{field: func(o any) ([]string, error) { return values(o.(client.Object)), nil }})
}

// silent is a recorder of no Events.
type silent struct{ recorder.EventRecorder }

func (silent) Eventf(runtime.Object, runtime.Object, string, string, string, string, ...any) {}

// reader is the client of the manager.
type reader struct {
	client.Client
	c *cluster
}

func (r reader) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	found, ok, err := r.c.stores[reflect.TypeOf(obj)].GetByKey(toolscache.NewObjectName(key.Namespace, key.Name).String())
	if err != nil || !ok {
		return errors.Join(err, apierrors.NewNotFound(schema.GroupResource{}, key.Name))
	}
	reflect.ValueOf(obj).Elem().Set(reflect.ValueOf(found).Elem())
	return nil
}

func (r reader) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	items, err := meta.GetItemsPtr(list)
	if err != nil {
		return err
	}
	kind := reflect.PointerTo(reflect.TypeOf(items).Elem().Elem())
	o := (&client.ListOptions{}).ApplyOptions(opts)
	var all []any
	switch {
	case o.FieldSelector != nil:
		by := o.FieldSelector.Requirements()[0]
		all, err = r.c.stores[kind].ByIndex(by.Field, by.Value)
	case o.Namespace != "":
		all, err = r.c.stores[kind].ByIndex(toolscache.NamespaceIndex, o.Namespace)
	default:
		all = r.c.stores[kind].List()
	}
	if err != nil {
		return err
	}
	r.c.listed[kind] += len(all)
	out := make([]runtime.Object, len(all))
	for i := range all {
		out[i] = all[i].(runtime.Object)
	}
	return meta.SetList(list, out)
}

func (r reader) Apply(context.Context, runtime.ApplyConfiguration, ...client.ApplyOption) error {
	r.c.mu.Lock()
	defer r.c.mu.Unlock()
	r.c.writes++
	return nil
}

// noStatus is a writer of statuses whose writes are lost.
type noStatus struct {
	client.SubResourceWriter
	c *cluster
}

func (s noStatus) Apply(ctx context.Context, o runtime.ApplyConfiguration, _ ...client.SubResourceApplyOption) error {
	return reader{c: s.c}.Apply(ctx, o)
}

const (
	router = "5f1c5aac-0000-4000-8000-0000000000e1"
	pool   = "5f1c5aac-0000-4000-8000-0000000000e4"
)

// options returns options of a planner in a mode.
func options(mode string) networks.PlannerOptions {
	return networks.PlannerOptions{
		Subnets: none{}, Pools: none{}, Uses: none{},
		Settings: settings.NewLive(settings.Settings{Networks: config.Networks{NetworkChoice: config.NetworkChoice{
			Mode: mode, RouterID: router, SubnetPoolIDs: []string{pool}, Ranges: []string{"10.0.0.0/8"}, PrefixLength: 24,
		}}}),
		Backoff: outcome.Backoff{Min: time.Second, Max: 10 * time.Second, Quota: 30 * time.Second, Rejected: time.Minute},
	}
}

// none is a cloud without subnets and subnet pools.
type none struct{}

func (none) Subnet(context.Context, string) (sdn.Subnet, error) { return sdn.Subnet{}, sdn.ErrNotFound }

func (none) InUse(context.Context, string) ([]sdn.PortUse, error) { return nil, nil }

func (none) SubnetPool(context.Context, string) (sdn.SubnetPool, error) {
	return sdn.SubnetPool{}, sdn.ErrUnavailable
}

// tenant adds a namespace with a pod, and with a network that is ready and has ports.
func (c *cluster) tenant(i, ports int) {
	name := fmt.Sprintf("ns-%d", i)
	ns := kube.NamespaceMeta()
	ns.SetName(name)
	ns.SetUID(types.UID("uid-" + name))
	c.has(ns)
	cidr, id := fmt.Sprintf("10.%d.%d.0/24", i/256, i%256), "net-"+name
	c.has(&v1.KuryrNetwork{
		ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: name, ResourceVersion: "1"},
		Spec: v1.KuryrNetworkSpec{
			Mode: v1.NetworkFlat, NamespaceUID: "uid-" + name, RouterID: router, Subnets: []v1.NetworkSubnet{{IPVersion: 4, CIDR: cidr}},
		},
		Status: v1.KuryrNetworkStatus{
			NetworkID: id, Subnets: []v1.NetworkSubnetStatus{{ID: "subnet-" + name, IPVersion: 4, CIDR: cidr, Routed: true}},
			Conditions: []metav1.Condition{{Type: v1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1.ReasonReady}},
		},
	})
	c.has(&v1.KuryrPortPool{ObjectMeta: metav1.ObjectMeta{Name: "pool-" + name}, Spec: v1.KuryrPortPoolSpec{Key: v1.PoolKey{Namespace: name, NetworkID: id}}})
	for n := range ports {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: fmt.Sprint("pod-", n), UID: types.UID(fmt.Sprint(name, "-", n))}}
		c.has(pod)
		c.has(&v1.KuryrPort{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(name, "-", n)}, Spec: v1.KuryrPortSpec{
			Pool: "pool-" + name, NetworkID: id, PodRef: &v1.PodReference{Namespace: name, Name: pod.Name, UID: pod.UID},
			VIF: v1.VIF{Addresses: []v1.Address{{SubnetID: "subnet-" + name}}},
		}})
	}
}

func request(i int) ctrl.Request {
	return ctrl.Request{NamespacedName: types.NamespacedName{Name: fmt.Sprintf("ns-%d", i)}}
}

// The plan of a namespace reads the ports, pools and pods of that namespace, and no others. Plans
// that choose no prefix read the networks of the other namespaces once, and once past the cache.
func TestPlansReadTheirOwnNamespace(t *testing.T) {
	const namespaces, ports = 100, 10
	c := newCluster(t)
	for i := range namespaces {
		c.tenant(i, ports)
	}
	p := networks.NewPlanner(c, options("flat"))
	for i := range namespaces {
		if result, err := p.Reconcile(t.Context(), request(i)); err != nil || !result.IsZero() {
			t.Fatalf("Reconcile(%s) = %v, %v", request(i), result, err)
		}
	}
	for kind, want := range map[client.Object]int{&v1.KuryrPort{}: namespaces * ports, &corev1.Pod{}: namespaces * ports, &v1.KuryrPortPool{}: namespaces, &v1.KuryrNetwork{}: 2 * namespaces} {
		if got := c.listed[reflect.TypeOf(kind)]; got != want {
			t.Errorf("plans of %d namespaces with %d ports each read %d objects %T, want %d", namespaces, ports, got, kind, want)
		}
	}
	if c.writes > 0 {
		t.Errorf("%d writes for networks that are as wanted", c.writes)
	}
}

// BenchmarkPlanNetworks measures one plan of a namespace with ten ports, among others.
func BenchmarkPlanNetworks(b *testing.B) {
	for _, namespaces := range []int{10, 100, 1000} {
		b.Run(fmt.Sprint(namespaces), func(b *testing.B) {
			c := newCluster(b)
			for i := range namespaces {
				c.tenant(i, 10)
			}
			p := networks.NewPlanner(c, options("flat"))
			i := 0
			for b.Loop() {
				if _, err := p.Reconcile(b.Context(), request(i%namespaces)); err != nil {
					b.Fatal(err)
				}
				i++
			}
		})
	}
}

// slowPools is a cloud whose answers about subnet pools are slow, and whose pools are missing.
type slowPools struct {
	takes time.Duration

	mu    sync.Mutex
	asked int
}

func (s *slowPools) SubnetPool(_ context.Context, id string) (sdn.SubnetPool, error) {
	s.mu.Lock()
	s.asked++
	s.mu.Unlock()
	time.Sleep(s.takes)
	return sdn.SubnetPool{}, &sdn.InvalidError{Field: sdn.FieldSubnetPool, Value: id, Err: sdn.ErrInvalid}
}

func (s *slowPools) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked
}

// A subnet pool that is missing costs one request a minute, whatever the number of namespaces, and
// no plan waits for the answer.
func TestAMissingSubnetPoolIsAskedForOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const namespaces = 1000
		c := newCluster(t)
		for i := range namespaces {
			ns := kube.NamespaceMeta()
			ns.SetName(request(i).Name)
			c.has(ns)
			c.has(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: ns.GetName(), Name: "pod"}})
		}
		cloud, o := &slowPools{takes: 30 * time.Second}, options("namespace")
		o.Pools = cloud
		p := networks.NewPlanner(c, o)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		plan := func() (waits time.Duration) {
			t.Helper()
			began := time.Now()
			for i := range namespaces {
				result, err := p.Reconcile(ctx, request(i))
				if err != nil {
					t.Fatalf("Reconcile(%s): %v", request(i), err)
				}
				waits = result.RequeueAfter
			}
			if took := time.Since(began); took > 0 {
				t.Errorf("%d plans waited %s for the cloud", namespaces, took)
			}
			synctest.Wait()
			return waits
		}
		if again := plan(); again != 0 || cloud.count() != 1 {
			t.Errorf("while the cloud is asked: again after %s, %d requests; want to be woken by the answer to one request", again, cloud.count())
		}
		time.Sleep(cloud.takes)
		synctest.Wait()
		if again := plan(); again != time.Minute || cloud.count() != 1 {
			t.Errorf("after the answer: again after %s, %d requests; want after a minute, and one request", again, cloud.count())
		}
		time.Sleep(time.Minute)
		if plan(); cloud.count() != 2 {
			t.Errorf("after a minute: %d requests, want a second one", cloud.count())
		}
		time.Sleep(cloud.takes)
	})
}
