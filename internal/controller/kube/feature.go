// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package kube

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Feature is what the controller does besides serving pods, if the configuration wants it:
// Services, for example. It is added to the running manager when the configuration first wants it.
// It is also added if something is left from a time when the configuration wanted it.
//
// Until then none of its kinds is watched, and the controller needs neither the kinds nor the
// permissions. So a controller that is newer than the cluster's CustomResourceDefinitions and
// ClusterRole still serves pods. A missing kind is reported, and the feature waits for it.
//
// A Feature runs in each controller process, so that its caches are filled before it gains keys. All
// fields but Tell are required.
type Feature struct {
	Parts  Parts
	Wanted <-chan struct{} // closed when the configuration wants it for the first time
	// Needs are permissions that it needs for all objects of these resources. Each rule is for one API group.
	Needs []rbacv1.PolicyRule
	Kinds []client.Object // their caches are filled before Parts are added

	Without string // what the lack of the feature means, as a clause
	// Tell reports the fault to the operator of the controller, besides the log.
	Tell    func(ctx context.Context, fault error)
	Blocked prometheus.Gauge // 1 while the feature is wanted and cannot be added
	Retry   time.Duration    // time between two checks whether it can be added
	Shards  Shards           // what is left is looked for again when keys are gained

	mgr    ctrl.Manager
	left   bool
	gained Signal
}

// Parts are what a Feature adds.
type Parts interface {
	// Wanted reports whether the configuration wants them now.
	Wanted() bool
	// Left reports whether the cluster has something left from when they were wanted, or restored from
	// then. Another process may make objects that this one has not wanted so far: it is called at the start,
	// each time that keys are gained, and seldom besides, while this process does not want them.
	Left(ctx context.Context) (bool, error)
	// Lacks is called when the API server lacks a kind or does not allow what they need, each time that
	// this is checked.
	Lacks()
	// Add adds them to the running manager.
	Add(ctx context.Context, mgr ctrl.Manager) error
}

// synced is how long the API server may take to list all objects of a feature's kinds. After that
// the delay is reported.
const synced = time.Minute

// AddTo adds the feature to a manager that has not started yet.
func (f *Feature) AddTo(mgr ctrl.Manager) error {
	f.mgr, f.gained = mgr, NewSignal()
	f.Shards.Follow(func(context.Context, Keys, bool) { f.gained.Send() }, nil)
	return mgr.Add(f)
}

// NeedLeaderElection is false: see Feature.
func (*Feature) NeedLeaderElection() bool { return false }

// Start waits until the feature is wanted and possible, adds it, and returns. It reports each cause of
// failure once. It fails only if Parts.Add fails.
func (f *Feature) Start(ctx context.Context) error {
	wanted, reported := f.Wanted, ""
	for {
		due, pause, err := f.due(ctx)
		switch {
		case due && err == nil: // Add has one try: the parts that it has added stay
			f.Blocked.Set(0)
			if err = f.Parts.Add(ctx, f.mgr); ctx.Err() != nil {
				return nil //nolint:nilerr // it was stopped
			}
			return err
		case due && err.Error() != reported && ctx.Err() == nil:
			reported = err.Error()
			f.report(ctx, err)
		case !due:
			reported = ""
		}
		select {
		case <-ctx.Done():
			return nil
		case <-wanted:
			wanted = nil // it stays closed
		case <-f.gained:
		case <-time.After(pause):
		}
	}
}

// due reports whether the feature is to be added, and returns why it cannot be, or when to check that
// again.
func (f *Feature) due(ctx context.Context) (due bool, again time.Duration, err error) {
	again = 10 * f.Retry // seldom: a person may restore something from a backup
	if closed(f.Wanted) {
		due, again = f.Parts.Wanted(), f.Retry
	}
	if !due && !f.left {
		if f.left, err = f.Parts.Left(ctx); err != nil {
			ctrl.LoggerFrom(ctx).Info("cannot check whether objects are left of what the configuration no longer wants", "without", f.Without, "error", err.Error())
			again = min(f.Retry, unanswered)
		}
	}
	if due = due || f.left; !due {
		f.Blocked.Set(0)
		return false, again, nil
	}
	if err = f.able(ctx); err == nil {
		err = f.watch(ctx)
	}
	if again = f.Retry; errors.As(err, new(*lackError)) {
		f.Parts.Lacks()
	} else { // the API server has not answered
		again = min(f.Retry, unanswered)
	}
	if err != nil && ctx.Err() == nil {
		f.Blocked.Set(1)
	}
	return true, again, err
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// unanswered is the pause after the API server has not answered.
const unanswered = time.Second

// lackError says what the API server lacks or does not allow.
type lackError struct{ error }

func (f *Feature) report(ctx context.Context, err error) {
	ctrl.LoggerFrom(ctx).Error(err, f.Without)
	if f.Tell != nil {
		f.Tell(ctx, fmt.Errorf("%s: %w. "+
			"Apply the CustomResourceDefinitions and the ClusterRole kuryr-controller of this version; Kuryr checks again by itself", f.Without, err))
	}
}

// able returns what the API server lacks or does not allow; nil if nothing.
func (f *Feature) able(ctx context.Context) error {
	for _, obj := range f.Kinds {
		if err := f.known(obj); err != nil {
			return err
		}
	}
	var lacking []string
	for _, rule := range f.Needs {
		for _, what := range rule.Resources {
			for _, verb := range rule.Verbs {
				resource, sub, _ := strings.Cut(what, "/")
				allowed, err := f.may(ctx, &authorizationv1.ResourceAttributes{Group: rule.APIGroups[0], Resource: resource, Subresource: sub, Verb: verb})
				if err != nil {
					return err
				}
				if !allowed {
					lacking = append(lacking, verb+" "+what)
				}
			}
		}
	}
	if len(lacking) > 0 {
		return &lackError{fmt.Errorf("the controller may not %s", strings.Join(lacking, ", "))}
	}
	return nil
}

// known returns an error unless the API server knows the kind of an object.
func (f *Feature) known(obj client.Object) error {
	kind, err := apiutil.GVKForObject(obj, f.mgr.GetScheme())
	if err != nil {
		return err
	}
	plural, _ := meta.UnsafeGuessKindToResource(kind)
	if _, err := f.mgr.GetRESTMapper().RESTMapping(kind.GroupKind(), kind.Version); meta.IsNoMatchError(err) {
		return &lackError{fmt.Errorf("the API server does not know %s", plural.GroupResource())}
	} else if err != nil {
		return fmt.Errorf("looking for %s: %w", plural.GroupResource(), err)
	}
	return nil
}

// may reports whether the controller has a permission for all objects of a kind.
func (f *Feature) may(ctx context.Context, what *authorizationv1.ResourceAttributes) (bool, error) {
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: what}}
	err := f.mgr.GetClient().Create(ctx, review)
	// By default all users may ask this. Without the answer, the first use shows whether the
	// permission exists.
	if NotServed(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("asking what the controller may do: %w", err)
	}
	return review.Status.Allowed, nil
}

// watch fills the caches. It may be repeated.
func (f *Feature) watch(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, synced)
	defer cancel()
	for _, obj := range f.Kinds { // at once; the second loop waits
		if _, err := f.mgr.GetCache().GetInformer(ctx, obj, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watching all objects of type %T: %w", obj, err)
		}
	}
	for _, obj := range f.Kinds {
		if _, err := f.mgr.GetCache().GetInformer(ctx, obj); err != nil {
			return fmt.Errorf("the API server has not listed all objects of type %T yet; the log says why: %w", obj, err)
		}
	}
	return nil
}

// NotServed reports whether an error says that the API server does not have a kind, or does not
// show it to the controller.
func NotServed(err error) bool {
	return meta.IsNoMatchError(err) || apierrors.IsNotFound(err) || apierrors.IsForbidden(err)
}
