// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package clusterips

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/outcome"
	"github.com/kuryr-go/kuryr/internal/controller/shards"
	"github.com/kuryr-go/kuryr/internal/plan/shard"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// server is an API server that has one holder, and gives it no cluster IP.
type server struct {
	client.Client
	holder *corev1.Service
	gone   bool
}

func (s *server) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	s.holder.DeepCopyInto(o.(*corev1.Service))
	return nil
}

func (s *server) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }

func (s *server) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), o.GetName(), nil)
}

func (s *server) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	s.gone = true
	return nil
}

// holding returns what keeps a holder of one load balancer, which the cloud shows.
func holding() (*Reconciler, *server) {
	holder := &corev1.Service{}
	holder.Name, holder.Spec.Type = "cluster-ip-1", corev1.ServiceTypeExternalName
	holder.Labels = map[string]string{v1.ClusterIPHolderLabel: ""}
	holder.Annotations = map[string]string{v1.HeldClusterIPAnnotation: "192.0.2.1", v1.HeldLoadBalancersAnnotation: "lb"}
	s := &server{holder: holder}
	return &Reconciler{
		Options: Options{Cloud: &octavia{listed: []sdn.LoadBalancerSummary{{ID: "lb"}}}, Backoff: outcome.Backoff{Quota: 30 * time.Second}},
		client:  s,
	}, s
}

// octavia has these load balancers, and answers about each of them with an error.
type octavia struct {
	listed []sdn.LoadBalancerSummary
	err    error
}

func (o *octavia) ListLoadBalancers(context.Context) ([]sdn.LoadBalancerSummary, error) {
	return o.listed, nil
}

func (o *octavia) LoadBalancer(_ context.Context, id string) (sdn.LoadBalancer, error) {
	return sdn.LoadBalancer{ID: id}, o.err
}

// TestLessShownIsNotGone: a load balancer that a list does not show is there until the cloud says
// of it that it is not.
func TestLessShownIsNotGone(t *testing.T) {
	r, s := holding()
	cloud := &octavia{}
	r.Cloud = cloud
	for _, answer := range []error{nil, sdn.ErrForbidden, sdn.ErrUnavailable, sdn.ErrNotFound} {
		cloud.err = answer
		if _, err := r.Reconcile(t.Context(), ctrl.Request{}); err != nil && !apierrors.IsInvalid(err) {
			t.Fatal(err)
		}
		if s.gone != errors.Is(answer, sdn.ErrNotFound) {
			t.Errorf("the load balancer is read with %v: the holder is deleted: %t", answer, s.gone)
		}
	}
}

// TestRefusedClusterIP: a cluster IP that the API server refuses is asked for again after the pauses of
// the queue.
func TestRefusedClusterIP(t *testing.T) {
	r, _ := holding()
	if _, err := r.Reconcile(t.Context(), ctrl.Request{}); !apierrors.IsInvalid(err) {
		t.Errorf("Reconcile = %v, want the refusal", err)
	}
}

// TestWhatIsForgottenOfLostKeys: when a holder was first seen does not count after a namespace was lost:
// another process may have deleted the holder. Another process counts the holders then.
func TestWhatIsForgottenOfLostKeys(t *testing.T) {
	r, _ := holding()
	r.Namespace = "kuryr-system"
	gate := shards.NewGate(nil)
	gate.Follow(nil, r.lose)
	other := shard.Set{}.With(shard.Bucket("namespace", "shop"))
	gate.Open(t.Context(), shard.All(), false)
	r.young.Store("uid", time.Now())
	heldClusterIPs.Set(3)
	gate.Lose(other)
	if _, has := r.young.Load("uid"); has || testutil.ToFloat64(heldClusterIPs) != 3 {
		t.Errorf("remembered %t, counted %v; want nothing remembered, and 3", has, testutil.ToFloat64(heldClusterIPs))
	}
	if gate.Lose(shard.All()); testutil.ToFloat64(heldClusterIPs) != 0 {
		t.Error("it counts the holders of another process")
	}
}
