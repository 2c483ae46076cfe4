// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package shards_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/apitest"
	"github.com/kuryr-go/kuryr/internal/controller"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
)

var server *rest.Config

func TestMain(m *testing.M) {
	os.Exit(apitest.Run(m, func(env *envtest.Environment) error {
		server = env.Config
		return nil
	}))
}

// bed is a namespace with the Leases of some replicas.
type bed struct {
	testing.TB
	client    client.Client
	namespace string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	t.Parallel()
	apitest.Need(t)
	scheme, err := controller.Scheme()
	if err != nil {
		t.Fatal(err)
	}
	c, err := client.New(server, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shards-"}}
	if err := c.Create(t.Context(), ns); err != nil {
		t.Fatal(err)
	}
	return &bed{t, c, ns.Name}
}

// process is a controller process with a Replica and nothing else.
type process struct {
	*shards.Replica
	stop context.CancelFunc
	done chan struct{}
	err  error
	cut  atomic.Bool // it does not reach the API server
}

// start starts a process with the caches of a manager.
func (b *bed) start(name string, active int) *process {
	b.Helper()
	p := &process{done: make(chan struct{})}
	cluster := rest.CopyConfig(server)
	cluster.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTrip(func(r *http.Request) (*http.Response, error) {
			if p.cut.Load() {
				return nil, errors.New("unreachable")
			}
			return next.RoundTrip(r)
		})
	})
	ctx, stop := context.WithCancel(ctrl.LoggerInto(context.Background(), ctrl.Log))
	p.stop = stop
	var err error
	if p.Replica, err = shards.New(ctx, shards.Options{Cluster: cluster, Namespace: b.namespace, Identity: name, Active: active}); err != nil {
		b.Fatal(err)
	}
	mgr, err := ctrl.NewManager(cluster, ctrl.Options{
		Scheme: b.client.Scheme(), Cache: kube.CacheOptions(), Metrics: metricsserver.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		GracefulShutdownTimeout: new(shard.Patience),
	})
	if err != nil {
		b.Fatal(err)
	}
	if _, err := mgr.GetCache().GetInformer(ctx, &v1.KuryrPort{}); err != nil {
		b.Fatal(err)
	}
	if err := errors.Join(p.Setup(mgr), mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { <-ctx.Done(); return nil }))); err != nil {
		b.Fatal(err)
	}
	p.Cached(&v1.KuryrPortList{})
	go func() {
		defer close(p.done)
		p.err = mgr.Start(ctx)
	}()
	b.Cleanup(func() {
		stop()
		<-p.done
	})
	return p
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// keys are keys of many buckets.
var keys = func() (list []kube.Key) {
	for i := range 300 {
		list = append(list, kube.OnNode(fmt.Sprint("node-", i)))
	}
	return list
}()

// admitted returns how many of the keys a process works on.
func (p *process) admitted() (n int) {
	for _, k := range keys {
		if leave, ok := p.Enter(k); ok {
			leave()
			n++
		}
	}
	return n
}

// eventually waits until a condition holds, and returns how long that took. The limit is only there to end.
func (b *bed) eventually(what string, holds func() bool) time.Duration {
	b.Helper()
	began := time.Now()
	for !holds() {
		if time.Since(began) > time.Minute {
			b.Fatalf("a minute later: not %s", what)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(began)
}

// allOwned waits until the processes own all keys together, each key once.
func (b *bed) allOwned(processes ...*process) time.Duration {
	b.Helper()
	return b.eventually("all keys are owned", func() bool {
		all := 0
		for _, p := range processes {
			all += p.admitted()
		}
		if all > len(keys) {
			b.Fatalf("%d keys of %d are owned", all, len(keys))
		}
		return all == len(keys)
	})
}

// Three replicas share the keys. What one owns that leaves, or that is cut off, passes to the others; work that
// runs is waited for, and nothing is begun by two.
func TestReplicasShareTheKeys(t *testing.T) {
	b := newBed(t)
	first := b.start("one", 0)
	b.allOwned(first)
	second := b.start("two", 0)
	third := b.start("three", 0)
	b.eventually("three share", func() bool {
		return min(first.Share(), second.Share(), third.Share()) > .3 && first.Share()+second.Share()+third.Share() == 1
	})
	b.allOwned(first, second, third)
	if first.Members() != 3 {
		t.Errorf("%d members, want 3", first.Members())
	}
	leader, known := third.Leader()
	if !known || leader != "one" && leader != "two" && leader != "three" {
		t.Errorf("the leader is %q, %v", leader, known)
	}

	var running kube.Key
	var leave func()
	for _, k := range keys {
		if l, ok := second.Enter(k); ok {
			running, leave = k, l
			break
		}
	}
	second.stop()
	t.Logf("all but the running key moved after %s", b.eventually("all but the running key moved", func() bool {
		return first.Share()+third.Share() > 126.5/128
	}))
	if first.Owns(running) || third.Owns(running) {
		t.Error("a key with running work was given away")
	}
	if finish, ok := second.Finish(running); !ok {
		t.Error("what completes running work is refused")
	} else {
		finish()
	}
	leave()
	t.Logf("the running key moved after %s", b.allOwned(first, third))
	<-second.done
	if second.err != nil {
		t.Errorf("a process that has given all away ended with %v", second.err)
	}

	third.cut.Store(true)
	began := time.Now()
	b.eventually("the keys of the one that is cut off moved", func() bool {
		if first.Share() == 1 && third.admitted() > 0 {
			t.Error("a process works on keys that another one owns")
		}
		return first.Share() == 1
	})
	t.Logf("the keys of the one that was cut off moved after %s", time.Since(began))
	third.cut.Store(false)
	<-third.done
	if third.err == nil {
		t.Error("a process whose Lease was broken ended without an error")
	}
	b.allOwned(first)
}

// With one active replica the oldest owns all. A change of that number moves keys.
func TestStandby(t *testing.T) {
	b := newBed(t)
	first := b.start("one", 1)
	b.allOwned(first)
	time.Sleep(time.Second) // the API server knows the age of objects in seconds
	second := b.start("two", 1)
	b.eventually("the standby knows the leader", func() bool { name, _ := second.Leader(); return name == "one" })
	if second.admitted() != 0 || !first.Holding() || second.Share() != 0 {
		t.Error("the standby works")
	}
	first.SetActive(t.Context(), 0)
	b.eventually("both work", func() bool { return first.Share() == .5 && second.Share() == .5 })
	first.SetActive(t.Context(), 1)
	second.SetActive(t.Context(), 1)
	b.eventually("one works", func() bool { return first.Share()+second.Share() == 1 && (first.Holding() || second.Holding()) })
	first.stop()
	<-first.done
	t.Logf("the standby works after %s", b.allOwned(second))
}

// An earlier version that leads is waited for.
func TestLeaderOfAnEarlierVersion(t *testing.T) {
	b := newBed(t)
	old := &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: shards.TableName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("old"), LeaseDurationSeconds: new(int32(30)), RenewTime: new(metav1.NowMicro())},
	}
	if err := b.client.Create(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	p := b.start("one", 1)
	for range 8 {
		time.Sleep(time.Second)
		if p.Share() > 0 {
			t.Fatal("it works while an earlier version leads")
		}
		old.Spec.RenewTime = new(metav1.NowMicro())
		if err := b.client.Update(t.Context(), old); err != nil {
			t.Fatal(err)
		}
	}
	old.Spec.HolderIdentity = new("")
	if err := b.client.Update(t.Context(), old); err != nil {
		t.Fatal(err)
	}
	b.allOwned(p)
}

// Who deletes a Lease, spoils the table or deletes it, stops work for some seconds, and breaks nothing.
func TestPeopleDeleteLeases(t *testing.T) {
	b := newBed(t)
	first := b.start("one", 0)
	b.allOwned(first)
	lease := func(name string) *coordinationv1.Lease {
		return &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: b.namespace, Name: name}}
	}
	table := lease(shards.TableName)
	if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(table), table); err != nil {
		t.Fatal(err)
	}
	table.Annotations["openstack.org/owners"] = `{"owners": "none"`
	if err := b.client.Update(t.Context(), table); err != nil {
		t.Fatal(err)
	}
	b.eventually("the owner stops", func() bool { return first.admitted() == 0 })
	if err := b.client.Delete(t.Context(), lease(shards.TableName+"-one")); err != nil {
		t.Fatal(err)
	}
	<-first.done
	if first.err == nil || !strings.Contains(first.err.Error(), "Lease") {
		t.Errorf("without its Lease it ended with %v", first.err)
	}
	if err := b.client.Delete(t.Context(), lease(shards.TableName)); err != nil {
		t.Fatal(err)
	}
	second, third := b.start("two", 0), b.start("three", 0)
	b.allOwned(second, third)
	if err := b.client.Delete(t.Context(), lease(shards.TableName)); err != nil {
		t.Fatal(err)
	}
	<-second.done
	<-third.done
	if second.err == nil || third.err == nil {
		t.Error("owners go on without the table")
	}
}

// Before a gained key is worked on, the cache shows what others wrote of its kind.
func TestGainedKeysWaitForTheCache(t *testing.T) {
	b := newBed(t)
	port := &v1.KuryrPort{ObjectMeta: metav1.ObjectMeta{Name: b.namespace, Finalizers: []string{v1.PortFinalizer}}}
	port.Spec = v1.KuryrPortSpec{NodeName: "node-1", Pool: "pool", NetworkID: "n", VIF: v1.VIF{Type: "ovs", MACAddress: "fa:16:3e:00:00:01", Addresses: []v1.Address{{IP: "10.1.2.3", SubnetID: "s"}}}}
	first := b.start("one", 1)
	b.allOwned(first)
	if err := b.client.Create(t.Context(), port); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Second)
	second := b.start("two", 1)
	b.eventually("the standby knows the leader", func() bool { name, _ := second.Leader(); return name == "one" })
	first.stop()
	b.allOwned(second)
	if err := b.client.Get(t.Context(), client.ObjectKeyFromObject(port), port); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(port.Annotations[v1.ShownAnnotation], "two ") {
		t.Errorf("the marker is %q", port.Annotations[v1.ShownAnnotation])
	}
}
