// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
)

// settled returns an object whose status says that nothing is to be done.
func settled() *v1.KuryrLoadBalancer {
	klb := &v1.KuryrLoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", Generation: 2}}
	klb.Status.Conditions = []metav1.Condition{
		{Type: v1.ConditionReady, Status: metav1.ConditionTrue, ObservedGeneration: 2},
		{Type: v1.ConditionProgressing, Status: metav1.ConditionFalse, ObservedGeneration: 2},
		{Type: v1.ConditionSupported, Status: metav1.ConditionTrue, ObservedGeneration: 2},
	}
	return klb
}

// TestNotAtRest: what is ready and still in progress is not at rest, nor what is ready of an earlier
// generation.
func TestNotAtRest(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*v1.KuryrLoadBalancer)
		want   bool
	}{
		"settled":            {func(*v1.KuryrLoadBalancer) {}, true},
		"another generation": {func(o *v1.KuryrLoadBalancer) { o.Generation = 3 }, false},
		"in progress":        {func(o *v1.KuryrLoadBalancer) { o.Status.Conditions[1].Status = metav1.ConditionTrue }, false},
	} {
		klb := settled()
		tc.change(klb)
		v := &reconciliation{Reconciler: &Reconciler{Options: Options{Shards: kube.Alone{}, Now: time.Now}}, klb: klb, memory: &memory{}}
		if rest, _, err := v.atRest(t.Context()); err != nil || rest != tc.want {
			t.Errorf("%s: atRest = %t, %v, want %t", name, rest, err, tc.want)
		}
	}
}

// TestGoneEndsItsTurn: an object that is gone, whose finalizer a person has removed, keeps no turn to
// replace what serves.
func TestGoneEndsItsTurn(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	r := &Reconciler{client: fake.NewClientBuilder().WithScheme(scheme).Build(), Options: Options{Shards: kube.Alone{}}}
	r.objects = kube.NewObject(r.client, &v1.KuryrLoadBalancer{}, "KuryrLoadBalancer", kube.OwnerBalancer, v1.LoadBalancerFinalizer)
	gone := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: "gone"}}
	r.turns.Store("red", gone)
	r.turns.Store("blue", ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "shop", Name: "web"}})
	if _, err := r.Reconcile(t.Context(), gone); err != nil {
		t.Fatal(err)
	}
	if who, has := r.turns.Load("red"); has {
		t.Errorf("%v still has the turn of its project", who)
	}
	if _, has := r.turns.Load("blue"); !has {
		t.Error("another one has lost its turn")
	}
}
