// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// creates is a cloud that lists and creates load balancers.
type creates struct {
	listed
	made []string
}

func (c *creates) CreateLoadBalancer(_ context.Context, _ sdn.Owner, lb sdn.LoadBalancer) (sdn.LoadBalancer, error) {
	c.made = append(c.made, lb.Name)
	return lb, nil
}

// TestTrialOfTheProcessBefore: a process that does not know the trial of the one before reads it, and
// creates none beside it.
func TestTrialOfTheProcessBefore(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	klb := &v1.KuryrLoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u"}}
	serving := sdn.LoadBalancer{ID: "lb", Name: "shop/web", VIP: v1.VIPAddress{IP: "10.96.0.10"}, Owner: ownerOf(klb)}
	for name, tc := range map[string]struct {
		cloud []sdn.LoadBalancerSummary
		want  []string
	}{
		"no trial": {[]sdn.LoadBalancerSummary{{ID: "lb", Owner: ownerOf(klb)}}, []string{"shop/web/trial"}},
		"a trial":  {[]sdn.LoadBalancerSummary{{ID: "lb", Owner: ownerOf(klb)}, {ID: "t", Owner: ownerOf(klb)}}, nil},
	} {
		cloud := &creates{listed: listed{all: tc.cloud}}
		api := fake.NewClientBuilder().WithScheme(scheme).WithObjects(klb.DeepCopy()).WithStatusSubresource(klb).Build()
		r := &Reconciler{client: api, Options: Options{Shards: kube.Alone{}, Cloud: Cloud{LoadBalancers: cloud}, Now: time.Now, Mend: time.Second, Backoff: outcome.Backoff{Quota: time.Second}}}
		r.wait.added, r.wait.busy = kube.NewSignal(), map[string]waiting{}
		r.objects = kube.NewObject(api, &v1.KuryrLoadBalancer{}, "KuryrLoadBalancer", kube.OwnerBalancer, v1.LoadBalancerFinalizer)
		var o v1.KuryrLoadBalancer
		req := kube.RequestOf(klb)
		if err := api.Get(t.Context(), req.NamespacedName, &o); err != nil {
			t.Fatal(err)
		}
		v := &reconciliation{Reconciler: r, req: req, klb: &o, memory: r.memories.of(&o)}
		v.round.Trees, v.round.Seen = []sdn.LoadBalancer{serving}, true
		if may, err := v.mayReplace(ctrl.LoggerInto(t.Context(), ctrl.Log), serving); may || err != nil || !slices.Equal(cloud.made, tc.want) {
			t.Errorf("%s: mayReplace = %t, %v, and created %q; want %q", name, may, err, cloud.made, tc.want)
		}
	}
}
