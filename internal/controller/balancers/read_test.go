// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// trees is a cloud with load balancers.
type trees struct {
	sdn.LoadBalancers
	all []sdn.LoadBalancer
}

func (c trees) LoadBalancer(_ context.Context, id string) (sdn.LoadBalancer, error) {
	for _, lb := range c.all {
		if lb.ID == id {
			return lb, nil
		}
	}
	return sdn.LoadBalancer{}, sdn.ErrNotFound
}

func (c trees) ListLoadBalancers(context.Context) (all []sdn.LoadBalancerSummary, err error) {
	for _, lb := range c.all {
		all = append(all, sdn.LoadBalancerSummary{ID: lb.ID, Owner: lb.Owner})
	}
	return all, nil
}

// lookFor has a KuryrLoadBalancer, whose status names load balancer lb, look at that cloud.
func lookFor(t *testing.T, all ...sdn.LoadBalancer) (ids []string) {
	t.Helper()
	klb := &v1.KuryrLoadBalancer{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}}
	klb.Spec.VIPs = []v1.VIPAddress{{IP: "10.96.0.10"}}
	klb.Status.LoadBalancers = []v1.LoadBalancerStatus{{ID: "lb", IP: "10.96.0.10"}}
	v := &reconciliation{
		Reconciler: &Reconciler{Options: Options{Shards: kube.Alone{}, Cloud: Cloud{LoadBalancers: trees{all: all}}, Now: time.Now}},
		klb:        klb, memory: &memory{knownCloud: knownCloud{created: map[string]time.Time{}}},
	}
	found, err := v.look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, lb := range found {
		ids = append(ids, lb.ID)
	}
	return ids
}

// TestLooksForWhatTookThePlace: if a load balancer of the status is gone, or is another object's, all
// with the mark are looked for: another one may have taken its place.
func TestLooksForWhatTookThePlace(t *testing.T) {
	own, other := sdn.Owner{Kind: sdn.KindLoadBalancer, Namespace: "shop", Name: "web"}, sdn.Owner{Kind: sdn.KindLoadBalancer, Namespace: "shop", Name: "other"}
	if ids := lookFor(t, sdn.LoadBalancer{ID: "next", Owner: own}); !slices.Equal(ids, []string{"next"}) {
		t.Errorf("instead of the one that is gone it found %q", ids)
	}
	if ids := lookFor(t, sdn.LoadBalancer{ID: "lb", Owner: other}, sdn.LoadBalancer{ID: "next", Owner: own}); !slices.Equal(ids, []string{"next"}) {
		t.Errorf("instead of that of another object it found %q", ids)
	}
}

// TestLackingProjects: a list that lacks the project of a load balancer says nothing about the load
// balancer, also if the spec names another project since.
func TestLackingProjects(t *testing.T) {
	klb := &v1.KuryrLoadBalancer{}
	klb.Spec.ProjectID, klb.Status.LoadBalancers = "blue", []v1.LoadBalancerStatus{{ID: "lb", ProjectID: "red"}}
	v := &reconciliation{klb: klb}
	for project, want := range map[string]error{"blue": sdn.ErrLogin, "red": sdn.ErrLogin, "green": nil} {
		if err := v.lacking(&sdn.PartialError{Lacks: map[string]error{project: sdn.ErrLogin}}); !errors.Is(err, want) {
			t.Errorf("a list without project %s: %v, want %v", project, err, want)
		}
	}
}

// TestNotShownWhileItLeaves: the status of a new object may say that its load balancer is being created.
// Of one in deletion that proves nothing once the deletion was reported.
func TestNotShownWhileItLeaves(t *testing.T) {
	now := time.Now()
	klb := &v1.KuryrLoadBalancer{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(now.Add(-time.Second))}}
	klb.Status.LoadBalancers = []v1.LoadBalancerStatus{{ID: "lb", ProvisioningStatus: string(sdn.ProvisioningCreating)}}
	for _, leaving := range []bool{false, true} {
		v := &reconciliation{Reconciler: &Reconciler{Options: Options{Shards: kube.Alone{}, Now: func() time.Time { return now }}}, klb: klb, memory: &memory{leaving: leaving}}
		if got := v.notShownYet("lb"); got == leaving {
			t.Errorf("leaving is %t, and notShownYet %t", leaving, got)
		}
	}
}
