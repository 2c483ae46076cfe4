// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// TestMemoryOfLostNamespaces: what is remembered of a lost namespace is dropped, and of no other. One
// that returns is as after a restart, and is checked in its turn again.
func TestMemoryOfLostNamespaces(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	api, all := fake.NewClientBuilder().WithScheme(scheme), map[string]*v1.KuryrLoadBalancer{}
	for _, namespace := range []string{"shop", "bank"} {
		klb := &v1.KuryrLoadBalancer{}
		klb.Namespace, klb.Name, klb.UID, klb.ResourceVersion = namespace, "web", "uid", "7"
		klb.Spec.ProjectID = namespace
		all[namespace] = klb
		api.WithObjects(klb)
	}
	gate := shards.NewGate(nil)
	r := &Reconciler{client: api.Build(), Options: Options{Shards: gate, Now: time.Now}}
	r.wait.busy, r.wait.added = map[string]waiting{}, kube.NewSignal()
	r.objects = kube.NewObject(r.client, &v1.KuryrLoadBalancer{}, "KuryrLoadBalancer", kube.OwnerBalancer, v1.LoadBalancerFinalizer)
	gate.Follow(nil, r.lose)
	remembered := func(namespace string) (known, waits, turn bool) {
		req := kube.RequestOf(all[namespace])
		ids, _ := r.wait.of(req)
		who, _ := r.turns.Load(namespace)
		return r.memories.all[req] != nil, len(ids) > 0, who == req
	}
	checks := func() (asked []string) {
		for range 2 {
			r.checks.left = nil
			if err := r.checkNext(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		for req, m := range r.memories.all {
			if m.asked.check {
				asked = append(asked, req.Namespace)
			}
		}
		return asked
	}
	if got := checks(); len(got) > 0 {
		t.Errorf("a process that owns nothing checks those of %v", got)
	}
	r.RequestCheck(kube.RequestOf(all["shop"]), true)
	if len(r.memories.all) > 0 {
		t.Error("a check of what another process applies is remembered")
	}

	gate.Open(t.Context(), shard.All(), false)
	for namespace, klb := range all {
		req := kube.RequestOf(klb)
		r.memories.of(klb).created["lb"] = time.Now()
		r.wait.add("lb-"+namespace, req, time.Now(), time.Now())
		r.turns.Store(namespace, req)
		r.objects.Wrote(klb)
	}
	r.quotas.note(quota{"load balancer", "shop"}, 1, sdn.ErrQuota, time.Now().Add(time.Hour))
	shop := shard.Set{}.With(shard.Bucket("namespace", "shop"))
	gate.Close(shop)
	gate.Lose(shop)
	if known, waits, turn := remembered("shop"); known || waits || turn {
		t.Errorf("of the lost namespace it remembers an object %v, a busy load balancer %v, a turn %v; want nothing", known, waits, turn)
	}
	if known, waits, turn := remembered("bank"); !known || !waits || !turn {
		t.Errorf("of another namespace it remembers an object %v, a busy load balancer %v, a turn %v; want all", known, waits, turn)
	}
	if err := r.quotas.take(quota{"load balancer", "shop"}, 1, time.Now(), time.Now()); err != nil {
		t.Errorf("a quota is remembered: %v", err)
	}
	if got := checks(); len(got) != 1 || got[0] != "bank" {
		t.Errorf("it checks the load balancers of %v, want those of bank", got)
	}

	gate.Open(t.Context(), shop, false)
	if m := r.memories.of(all["shop"]); len(m.created) > 0 || m.trees != nil {
		t.Errorf("the memory of the returned namespace is %+v, want that after a restart", m)
	}
	for range 2 {
		if err := r.checkNext(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, namespace := range []string{"shop", "bank"} {
		if !r.memories.all[ctrl.Request{NamespacedName: kube.RequestOf(all[namespace]).NamespacedName}].asked.check {
			t.Errorf("the load balancer of %s is not checked", namespace)
		}
	}
}

// TestBrakeOfTwoProcesses: two processes that do not see each other's status yet may both begin to
// replace a load balancer of one project. Both have a trial created then. When the cloud has created
// the trials, the statuses tell which one goes on.
func TestBrakeOfTwoProcesses(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	builder := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&v1.KuryrLoadBalancer{})
	for _, namespace := range []string{"shop", "bank"} {
		builder.WithObjects(&v1.KuryrLoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web", UID: types.UID(namespace)}})
	}
	api, late := builder.Build(), true
	cached := interceptor.NewClient(api, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, o ...client.ListOption) error {
		if late {
			return nil // as long as the cache shows no other object's status
		}
		return c.List(ctx, list, o...)
	}})
	processes := map[string]*reconciliation{}
	for _, namespace := range []string{"shop", "bank"} {
		o := &v1.KuryrLoadBalancer{}
		if err := api.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: "web"}, o); err != nil {
			t.Fatal(err)
		}
		serving := sdn.LoadBalancer{ID: "lb-" + namespace, Name: namespace + "/web", VIP: v1.VIPAddress{IP: "10.96.0.10"}, Owner: ownerOf(o)}
		cloud := &creates{listed: listed{all: []sdn.LoadBalancerSummary{{ID: serving.ID, Owner: serving.Owner}}}}
		r := &Reconciler{client: cached, Options: Options{Shards: kube.Alone{}, Cloud: Cloud{LoadBalancers: cloud}, Now: time.Now, Mend: time.Second, Backoff: outcome.Backoff{Quota: time.Second}}}
		r.wait.added, r.wait.busy = kube.NewSignal(), map[string]waiting{}
		r.objects = kube.NewObject(api, &v1.KuryrLoadBalancer{}, "KuryrLoadBalancer", kube.OwnerBalancer, v1.LoadBalancerFinalizer)
		v := &reconciliation{Reconciler: r, req: kube.RequestOf(o), klb: o, memory: r.memories.of(o)}
		v.round.Trees = []sdn.LoadBalancer{serving}
		if may, err := v.mayReplace(t.Context(), serving); may || err != nil || len(cloud.made) != 1 {
			t.Fatalf("%s: mayReplace = %t, %v, and created %q; want a trial", namespace, may, err, cloud.made)
		}
		processes[namespace] = v
	}
	late = false
	for namespace, want := range map[string]bool{"bank": true, "shop": false} {
		v := processes[namespace]
		serving := v.round.Trees[0]
		trial := balancer.Trial(serving)
		trial.ID, trial.Provisioning = "trial", sdn.ProvisioningActive
		v.round = round{}
		v.round.Trees = []sdn.LoadBalancer{serving, trial}
		if may, err := v.mayReplace(t.Context(), serving); may != want || err != nil {
			t.Errorf("%s: mayReplace = %t, %v; want %t", namespace, may, err, want)
		}
	}
}
