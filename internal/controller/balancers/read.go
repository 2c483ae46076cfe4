// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package balancers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/keylock"
	"github.com/kuryr-go/kuryr/internal/plan/balancer"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// look returns the load balancers that the cloud has for a KuryrLoadBalancer. It returns what
// was read last, if nothing has been requested since. Else it reads those that the status
// names. It lists all with the object's mark if the status may not name all.
func (v *reconciliation) look(ctx context.Context) ([]sdn.LoadBalancer, error) {
	if v.memory.nothingCreated {
		v.memory.trees, v.memory.statusIncomplete = []sdn.LoadBalancer{}, false
	}
	if v.memory.trees != nil && !v.memory.statusIncomplete {
		return v.memory.trees, nil
	}
	ids := balancer.Named(v.klb)
	all := v.memory.statusIncomplete || !balancer.NamesAll(v.klb)
	for {
		if all {
			var err error
			var owned []sdn.LoadBalancerSummary
			if owned, err = v.owned(ctx); err != nil {
				return nil, err
			}
			for _, s := range owned { // a load balancer without its tags is not listed
				if !slices.Contains(ids, s.ID) {
					ids = append(ids, s.ID)
				}
			}
		}
		trees, missing, err := v.read(ctx, ids)
		if err != nil {
			return nil, err
		}
		if missing && !all { // another one may have taken its place
			all = true
			continue
		}
		v.memory.trees, v.memory.statusIncomplete = trees, false
		maps.DeleteFunc(v.memory.created, func(id string, _ time.Time) bool { return !slices.Contains(ids, id) })
		return trees, nil
	}
}

// owned returns all load balancers with the mark of an object.
func (v *reconciliation) owned(ctx context.Context) ([]sdn.LoadBalancerSummary, error) {
	listed, err := v.lists.get(ctx, "", func(ctx context.Context, _ string) ([]sdn.LoadBalancerSummary, error) {
		return v.Cloud.LoadBalancers.ListLoadBalancers(ctx)
	})
	if err := v.lacking(err); err != nil {
		return nil, fmt.Errorf("listing load balancers: %w", err)
	}
	var owned []sdn.LoadBalancerSummary
	for _, s := range listed {
		if s.Owner == ownerOf(v.klb) && s.Provisioning != sdn.ProvisioningDeleted {
			owned = append(owned, s)
		}
	}
	return owned, nil
}

// lacking returns what the error of a list says about the projects of the object: that of the spec,
// and those of its load balancers.
func (v *reconciliation) lacking(err error) error {
	if failed := sdn.ErrorIn(v.klb.Spec.ProjectID, err); failed != nil {
		return failed
	}
	for _, lb := range v.klb.Status.LoadBalancers {
		if failed := sdn.ErrorIn(lb.ProjectID, err); failed != nil {
			return failed
		}
	}
	return nil
}

// read returns the load balancers with these IDs that exist. A load balancer with the mark of
// another object is not returned, even if the status names it.
func (v *reconciliation) read(ctx context.Context, ids []string) (trees []sdn.LoadBalancer, missing bool, err error) {
	trees = []sdn.LoadBalancer{}
	for _, id := range ids {
		tree, err := v.Cloud.LoadBalancers.LoadBalancer(ctx, id)
		if errors.Is(err, sdn.ErrNotFound) && v.notShownYet(id) {
			return nil, false, &sdn.PendingError{What: "load balancer " + id + ", which Octavia has made and does not show yet", Retry: v.Backoff.Min}
		}
		v.memory.created[id] = time.Time{} // it was read, whatever an old status says
		if errors.Is(err, sdn.ErrNotFound) || err == nil && tree.Owner != (sdn.Owner{}) && tree.Owner != ownerOf(v.klb) {
			missing = true
			continue
		}
		if err != nil {
			return nil, false, fmt.Errorf("reading load balancer %s: %w", id, err)
		}
		trees = append(trees, tree)
	}
	return trees, missing, nil
}

// shownWithin is how long a new load balancer may be missing in Octavia's answers. They may come from
// a replica of its database, which is seconds behind.
const shownWithin = 30 * time.Second

// notShownYet reports whether a load balancer that is not found was created moments ago, and was not
// seen since. Of an earlier process, the age of the object says it.
func (v *reconciliation) notShownYet(id string) bool {
	since, created := v.memory.created[id]
	if !created && !v.memory.leaving {
		since, created = v.klb.CreationTimestamp.Time, slices.ContainsFunc(v.klb.Status.LoadBalancers, func(lb v1.LoadBalancerStatus) bool {
			return lb.ID == id && lb.ProvisioningStatus == string(sdn.ProvisioningCreating)
		})
	}
	return created && v.Now().Sub(since) < shownWithin
}

// features returns what the provider of a KuryrLoadBalancer can do. trees are its load balancers in
// the cloud.
func (r *Reconciler) features(ctx context.Context, klb *v1.KuryrLoadBalancer, trees []sdn.LoadBalancer) (sdn.Features, error) {
	provider := balancer.Provider(klb, trees, balancer.Named(klb))
	if provider == "" && len(trees) == 0 && len(klb.Status.LoadBalancers) > 0 {
		provider = klb.Status.LoadBalancers[0].Provider
	}
	f, err := r.Cloud.LoadBalancers.Features(ctx, provider)
	if err != nil {
		return f, fmt.Errorf("cannot read what provider %q supports: %w", provider, err)
	}
	return f, nil
}

func ownerOf(klb *v1.KuryrLoadBalancer) sdn.Owner {
	return sdn.Owner{Kind: sdn.KindLoadBalancer, Namespace: klb.Namespace, Name: klb.Name}
}

// sharedList lets one request answer all callers that want the same list at the same time. Unlike
// with singleflight, the request began after each of its callers asked. So the answer is not older
// than the question. The last list of each project stays in memory. The zero value is ready for use. It
// is safe for concurrent use.
type sharedList[T any] struct {
	locks keylock.Locks[string] // by project
	last  sync.Map              // by project: the last *listing[T]
}

type listing[T any] struct {
	began time.Time
	all   []T
	err   error
}

// get lists what a project has, or returns a list of another caller. The caller must not change the
// list.
func (s *sharedList[T]) get(ctx context.Context, project string, list func(context.Context, string) ([]T, error)) ([]T, error) {
	asked := time.Now()
	release, err := s.locks.Take(ctx, project)
	if err != nil {
		return nil, err
	}
	defer release()
	if last, has := s.last.Load(project); has && last.(*listing[T]).began.After(asked) {
		return last.(*listing[T]).all, last.(*listing[T]).err
	}
	next := &listing[T]{began: time.Now()}
	next.all, next.err = list(ctx, project)
	s.last.Store(project, next)
	return next.all, next.err
}
