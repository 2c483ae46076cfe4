// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Judged is a resource that no object named in two comparisons, and what becomes of it.
type Judged struct {
	Resource
	Verdict Verdict
	Why     string // for a person
	Deleted bool
	Err     error // why it could not be judged, or not be deleted
}

// Audit compares all inventories twice, and judges what no object named, as the controllers do. It
// changes nothing. wait waits for a grace period, as the settings of the inventories have it. fresh is
// how much was found that was not there in the first comparison, or has changed since.
//
// The error is what the comparisons could not determine.
func Audit(ctx context.Context, live client.Reader, all []*Inventory, wait func(context.Context) error) (judged []Judged, fresh int, unsure error) {
	failed := make([]error, len(all))
	look := func() {
		judged, fresh = nil, 0
		for i, v := range all {
			found, err := v.look(ctx)
			if kube.NotServed(err) { // a cluster without that kind
				continue
			}
			if err = errors.Join(err, found.Unsure); err != nil {
				failed[i] = fmt.Errorf("%s: %w", v.Name, err)
			}
			_, due, _ := v.remember(found)
			for _, l := range due {
				judged = append(judged, Judged{Resource: l.Resource, Verdict: Deletes})
			}
			fresh += len(v.unnamed) - len(due)
		}
	}
	look()
	if err := wait(ctx); err != nil {
		return nil, 0, err
	}
	look()
	settle(judged, func(j *Judged) { j.judge(ctx, live) })
	judged = slices.DeleteFunc(judged, func(j Judged) bool { return j.Verdict == Keeps && j.Err == nil })
	return judged, fresh, errors.Join(failed...)
}

// Delete judges once more what is to be deleted, and deletes it. It may be repeated for what was not.
func Delete(ctx context.Context, live client.Reader, judged []Judged) {
	settle(judged, func(j *Judged) {
		if j.Verdict != Deletes || j.Deleted {
			return
		}
		if j.judge(ctx, live); j.Verdict == Deletes && j.Err == nil {
			j.Err = j.Kind.Delete(ctx, j.Resource)
			if j.Deleted = j.Err == nil; j.Deleted {
				j.did(ctx, v1.ReasonOrphanDeleted, j.Why)
			}
		}
	})
}

// settle handles the resources of a kind concurrently, and the kinds one after the other: the cloud
// deletes no router before its network.
func settle(judged []Judged, one func(*Judged)) {
	for rest := judged; len(rest) > 0; {
		n := slices.IndexFunc(rest, func(j Judged) bool { return j.Kind != rest[0].Kind })
		if n < 0 {
			n = len(rest)
		}
		var at errgroup.Group
		at.SetLimit(atOnce)
		for i := range rest[:n] {
			at.Go(func() error { one(&rest[i]); return nil })
		}
		_ = at.Wait()
		rest = rest[n:]
	}
}

// judge judges a resource without the locks of the controllers. So what they may be about to name is
// theirs, too: a security group, a network or a router whose owner exists.
func (j *Judged) judge(ctx context.Context, live client.Reader) {
	j.Verdict, _, j.Err = j.Resource.judge(ctx)
	j.Why = map[Verdict]string{Keeps: "an object names it by now", Adopts: j.Kind.WhyAdopt, Deletes: j.Kind.WhyDelete}[j.Verdict]
	if j.Verdict != Deletes || j.Kind.Making == nil {
		return
	}
	object := client.Object(&v1.KuryrLoadBalancer{})
	if j.Owner.Kind == sdn.KindNetwork {
		object = &v1.KuryrNetwork{}
	}
	var exists bool
	if exists, j.Err = j.owner(ctx, live, object); exists {
		j.Verdict, j.Why = Leaves, "its owner exists, so the controllers decide"
	}
}

// Verdict is what becomes of a resource that no object named.
type Verdict string

// The verdicts.
const (
	Keeps   Verdict = "keep"
	Adopts  Verdict = "adopt"
	Deletes Verdict = "delete"
	Leaves  Verdict = "leave" // Audit's: to the controllers, or unknown
)

// judge asks the API server once more, and decides. It changes nothing. adopt is set with Adopts only.
func (r Resource) judge(ctx context.Context) (is Verdict, adopt func(context.Context) error, err error) {
	if wanted, err := r.Kind.Wanted(ctx, r); wanted || err != nil {
		return Keeps, nil, err
	}
	if r.Kind.Adopt != nil {
		adopt, err = r.Kind.Adopt(ctx, r)
	}
	switch {
	case err != nil:
		return Keeps, nil, err
	case adopt != nil:
		return Adopts, adopt, nil
	}
	return Deletes, nil, nil
}

// decide judges a resource, and then adopts or deletes it.
func (r Resource) decide(ctx context.Context, before bool) (asked bool, err error) {
	log := ctrl.LoggerFrom(ctx)
	if r.Kind.Making != nil {
		release, free := r.Kind.Making.Try(kube.OwnerRequest(r.Owner))
		if !free { // the owner is naming a resource: the next comparison sees which one
			return false, nil
		}
		defer release()
	}
	is, adopt, err := r.judge(ctx)
	if err != nil || is == Keeps {
		return false, err
	}
	if is == Adopts {
		if err := adopt(ctx); err != nil {
			return false, err
		}
		log.Info("adopted a resource that no object named")
		r.did(ctx, v1.ReasonOrphanAdopted, r.Kind.WhyAdopt)
		return true, nil
	}
	switch err := r.Kind.Delete(ctx, r); {
	case errors.Is(err, errUsed):
		log.V(1).Info("a resource that no object names is in use, so it stays", "because", err.Error())
		return false, nil
	case err != nil:
		return false, fmt.Errorf("cannot delete it: %w", err)
	case !before:
		log.Info("deleted a resource that no object named")
		r.did(ctx, v1.ReasonOrphanDeleted, r.Kind.WhyDelete)
	}
	return true, nil
}

// did counts a resource that was adopted or deleted, and writes an Event on the KuryrCluster: the
// owner is gone. Its name has the resource's ID, so there is one for each resource. As each follows a
// request to the cloud, they are limited as these are. Without a KuryrCluster there is no Event.
func (r Resource) did(ctx context.Context, reason, why string) {
	count := r.Kind.Deleted
	if reason == v1.ReasonOrphanAdopted {
		count = r.Kind.Adopted
	}
	if count != nil {
		count.Inc()
	}
	if r.Kind.From == nil {
		return
	}
	var on v1.KuryrCluster
	err := r.Kind.From.GetAPIReader().Get(ctx, client.ObjectKey{Name: v1.ClusterName}, &on)
	if err == nil {
		note := fmt.Sprintf("%s %s (%s) of %s, which no object named: %s", r.Kind.Name, r.ID, r.Name, r.Owner, why)
		err = kube.Announce(ctx, r.Kind.From.GetClient(), "orphan-"+r.ID, kube.Reference(&on, "KuryrCluster"), reason, "Collect", note)
	}
	if err != nil && !apierrors.IsNotFound(err) && !kube.NotServed(err) {
		ctrl.LoggerFrom(ctx).Info("the Event on the KuryrCluster is missing", "because", err.Error())
	}
}

// owner reads the object that a resource was created for. It reports whether the object exists.
func (r Resource) owner(ctx context.Context, from client.Reader, into client.Object) (bool, error) {
	err := from.Get(ctx, kube.OwnerRequest(r.Owner).NamespacedName, into)
	if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading its owner %s: %w", r.Owner, err)
	}
	return true, nil
}
