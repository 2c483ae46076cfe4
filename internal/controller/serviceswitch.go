// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/membergroups"
	"github.com/kuryr-go/kuryr/internal/controller/services"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

var servicesBlocked = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "kuryr_services_blocked",
	Help: "1 while Services are to be served and the API server lacks a kind for it, or the controller a permission.",
})

func init() { metrics.Registry.MustRegister(servicesBlocked) }

// syncTimeout is how long the API server may take to list all Services before it is
// worth a word.
const syncTimeout = time.Minute

// serviceSwitch adds what serves Services to the running manager: when the settings
// first say that they are to be served, or when something is left from when they
// did, so that no Service waits for ever to be deleted. Until then nothing of theirs
// is watched, and the controller needs neither the kinds nor the permissions: one
// that is newer than these serves pods.
//
// It runs in replicas that do not lead, too: their caches are filled when they do.
type serviceSwitch struct {
	Options
	mgr  ctrl.Manager
	live client.Reader // past the cache

	reconcilers []interface{ Setup(ctrl.Manager) error } // serve Services

	left bool // something is there from when Services were served
}

// NeedLeaderElection is false: see serviceSwitch.
func (*serviceSwitch) NeedLeaderElection() bool { return false }

// Start waits until Services are to be served and can be, adds what serves them, and
// returns. It fails on a mistake of the program's only.
func (s *serviceSwitch) Start(ctx context.Context) error {
	if !s.due(ctx) || !s.insist(ctx, s.able) || !s.insist(ctx, s.watch) {
		return nil
	}
	servicesBlocked.Set(0)
	if err := s.setup(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("setting up what serves Services: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("serving Services")
	return nil
}

// due waits until Services are to be served; false if ctx ends before that.
func (s *serviceSwitch) due(ctx context.Context) bool {
	elected := s.mgr.Elected() // from then on nobody else makes anything that is left
	for {
		select {
		case <-ctx.Done():
			return false
		case <-s.Settings.Serving:
			return true
		case <-elected:
		}
		var err error
		if s.left, err = s.leftovers(ctx); s.left {
			return true
		}
		if err == nil {
			elected = nil
			continue
		}
		ctrl.LoggerFrom(ctx).Info("cannot tell whether load balancers of Services are left", "error", err.Error())
		if !kube.Pause(ctx, s.Backoff.Rejected) {
			return false
		}
	}
}

// leftovers reports whether there is a KuryrLoadBalancer, or our finalizer on a
// Service. Who may not look has made none.
func (s *serviceSwitch) leftovers(ctx context.Context) (bool, error) {
	balancers := metaList(v1.GroupVersion.WithKind("KuryrLoadBalancerList"))
	err := s.live.List(ctx, balancers, client.Limit(1))
	if none(err) {
		return false, nil
	}
	if err != nil || len(balancers.Items) > 0 {
		return err == nil, err
	}
	for next := ""; ; {
		page := metaList(corev1.SchemeGroupVersion.WithKind("ServiceList"))
		if err := s.live.List(ctx, page, client.Limit(500), client.Continue(next)); err != nil {
			return false, ignore(err, none)
		}
		for i := range page.Items {
			if slices.Contains(page.Items[i].Finalizers, v1.ServiceFinalizer) {
				return true, nil
			}
		}
		if next = page.Continue; next == "" {
			return false, nil
		}
	}
}

func metaList(kind schema.GroupVersionKind) *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(kind)
	return list
}

// none reports whether an error says that the API server does not have a kind, or
// does not show it.
func none(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
}

func ignore(err error, is func(error) bool) error {
	if is(err) {
		return nil
	}
	return err
}

// insist does a step until it works and says why it does not, each cause once. It
// returns false if ctx ends before that.
func (s *serviceSwitch) insist(ctx context.Context, step func(context.Context) error) bool {
	said := ""
	for {
		if !s.left && !settings.ServesServices(&s.Settings.Load().Services) { // somebody has thought better of it
			servicesBlocked.Set(0)
			said = ""
		} else if err := step(ctx); err == nil || ctx.Err() != nil {
			return ctx.Err() == nil
		} else {
			servicesBlocked.Set(1)
			if err.Error() != said {
				said = err.Error()
				s.complain(ctx, err)
			}
		}
		if !kube.Pause(ctx, s.Backoff.Rejected) {
			return false
		}
	}
}

func (s *serviceSwitch) complain(ctx context.Context, err error) {
	ctrl.LoggerFrom(ctx).Error(err, "Services are not served, only pods are")
	if s.Tell != nil {
		s.Tell(ctx, fmt.Errorf("Services are not served, only pods are: %w. "+
			"Apply the CustomResourceDefinitions and the ClusterRole kuryr-controller of this version; Kuryr looks again by itself", err))
	}
}

// serviceNeeds is what serving Services needs of the API server beyond pods.
var serviceNeeds = []struct {
	group, resource, sub string
	verbs                []string
}{
	{"", "services", "", []string{"get", "list", "watch"}},
	{"", "services", "status", []string{"patch"}},
	{discoveryv1.GroupName, "endpointslices", "", []string{"list", "watch"}},
	{v1.GroupVersion.Group, "kuryrloadbalancers", "", []string{"get", "list", "watch", "create", "patch", "delete"}},
	{v1.GroupVersion.Group, "kuryrloadbalancers", "status", []string{"patch"}},
}

// able returns what the API server lacks, or does not allow; nil if nothing.
func (s *serviceSwitch) able(ctx context.Context) error {
	kind := v1.GroupVersion.WithKind("KuryrLoadBalancer")
	if _, err := s.mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); meta.IsNoMatchError(err) {
		return errors.New("the API server does not know kuryrloadbalancers.openstack.org")
	} else if err != nil {
		return fmt.Errorf("looking for kuryrloadbalancers.openstack.org: %w", err)
	}
	var lacking []string
	for _, n := range serviceNeeds {
		for _, verb := range n.verbs {
			allowed, err := s.may(ctx, &authorizationv1.ResourceAttributes{Group: n.group, Resource: n.resource, Subresource: n.sub, Verb: verb})
			if err != nil {
				return err
			}
			if !allowed {
				lacking = append(lacking, verb+" "+strings.Trim(n.resource+"/"+n.sub, "/"))
			}
		}
	}
	if len(lacking) > 0 {
		return fmt.Errorf("the controller may not %s", strings.Join(lacking, ", "))
	}
	return nil
}

// may asks whether the controller may do something to all objects of a kind.
func (s *serviceSwitch) may(ctx context.Context, what *authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: what}}
	err := s.mgr.GetClient().Create(ctx, review)
	if none(err) { // somebody has taken away what everybody may: then it shows when it is done
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking what the controller may do: %w", err)
	}
	return review.Status.Allowed, nil
}

// watch fills the caches. It may be repeated.
func (s *serviceSwitch) watch(ctx context.Context) error {
	for _, obj := range []client.Object{&corev1.Service{}, &discoveryv1.EndpointSlice{}, &v1.KuryrLoadBalancer{}} {
		if _, err := s.mgr.GetCache().GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watching %T: %w", obj, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, syncTimeout)
	defer cancel()
	if !s.mgr.GetCache().WaitForCacheSync(ctx) {
		return errors.New("the API server has not listed all Services, EndpointSlices and KuryrLoadBalancers yet: the log says why")
	}
	return nil
}

// setup adds the reconcilers. There is one try: what has been added stays.
func (s *serviceSwitch) setup(ctx context.Context) error {
	for _, index := range []func(context.Context, ctrl.Manager) error{services.Index, kube.AddPortAddressIndex, membergroups.Index} {
		if err := index(ctx, s.mgr); err != nil {
			return err
		}
	}
	for _, r := range s.reconcilers {
		if err := r.Setup(s.mgr); err != nil {
			return err
		}
	}
	return nil
}
