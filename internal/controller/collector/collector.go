// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

// Package collector compares the resources that the cloud has for this cluster with the objects
// that are to name them. It deletes a resource that no object names in two comparisons a grace
// period apart. It gives a port to a pool instead, if a pool can use the port.
//
// If an object's resource is gone, the collector requeues the object, and the package that applies
// the object repairs it. The collector writes no object.
//
// Each Inventory has one runner: one for ports, one for load balancers with their floating IPs, one
// for security groups, and one for networks with their routers. A runner compares by lists, not by
// one request per resource. Inventories share no state.
//
// Each process lists, and handles what its keys own: see Resource. So all that a key's work and its
// collection share stays within one process. The more processes there are, the less often each lists.
package collector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Kind is a kind of cloud resource. Several goroutines may call Wanted, Adopt and Delete
// concurrently, for different resources.
type Kind struct {
	Name string // in logs, metrics and Events
	From source // for Events

	// Making is held for the owner of a resource while the resource is deleted: the owner cannot find
	// it by its mark, and name it, after Wanted was asked. A precondition cannot do that, as the cloud
	// does not know Kubernetes objects. The lock is within this process. That is enough: the owner of
	// the resource's key runs both. nil: owners never name an existing resource.
	Making *kube.Owners
	// Wanted reports whether an object names the resource, or may be about to. It asks the API
	// server, past the cache.
	Wanted func(ctx context.Context, r Resource) (bool, error)
	// Adopt returns a function that keeps the resource for somebody who can use it; nil if there is
	// none. Adopt itself is nil for kinds that are never adopted.
	Adopt func(ctx context.Context, r Resource) (adopt func(context.Context) error, err error)
	// Delete deletes the resource. After it the resource is gone, or will be gone without another
	// request. It returns errUsed if the resource is still in use.
	Delete func(ctx context.Context, r Resource) error

	Adopted, Deleted prometheus.Counter // Adopted may be nil

	WhyAdopt, WhyDelete string // reasons, for a person
}

// errUsed: a resource is in use, so it is deleted later. It is not reported.
var errUsed = errors.New("the resource is in use")

// ifUsed adds errUsed to an error of the SDN that says so.
func ifUsed(err error) error {
	if errors.Is(err, sdn.ErrConflict) || errors.As(err, new(*sdn.PendingError)) {
		return fmt.Errorf("%w: %w", errUsed, err)
	}
	return err
}

// Resource is a cloud resource that belongs to this cluster.
type Resource struct {
	Kind  *Kind
	ID    string
	Owner sdn.Owner
	// Name, or the address, and Created are for a person; Created is zero if the cloud does not tell.
	Name    string
	Created time.Time
	// Key is the key whose owner handles the resource: a port's is its node, that of others is the
	// namespace of Owner.
	Key kube.Key
	// Elsewhere reports that another user of the cloud uses the resource.
	Elsewhere bool
	Revision  int // of a port
	// ProjectID and VIP are of the port of a VIP.
	ProjectID string
	VIP       v1.VIPAddress
}

// source is where objects are read; a manager is one.
type source interface {
	GetClient() client.Client
	GetAPIReader() client.Reader // reads past the cache
}

// ownedBy returns a resource of an object in a namespace.
func ownedBy(owner sdn.Owner, kind *Kind, id string) Resource {
	return Resource{Kind: kind, ID: id, Owner: owner, Key: kube.InNamespace(owner.Namespace)}
}

// Findings is the result of one comparison.
type Findings struct {
	// Unnamed resources are named by no object. They are deleted once a later comparison finds them
	// unnamed, too.
	Unnamed []Resource
	// Differ are objects whose resource is not shown, or not as they say. They are requeued: what
	// applies them asks the cloud for the resource itself.
	Differ []ctrl.Request
	// Unsure is what could not be determined.
	Unsure error
}

// unlisted returns what a list lacks, with its name; nil if it lacks nothing. Objects of the lacking
// projects are not missing: the list says nothing about them. A resource that it has and that no
// object names is left over all the same, as all objects are known.
func unlisted(what string, lacks error) error {
	if lacks == nil {
		return nil
	}
	return fmt.Errorf("listing %s: %w", what, lacks)
}

// Inventory is the resources and objects of one comparison.
type Inventory struct {
	Name     string
	Settings *settings.Live
	Shards   kube.Shards
	comparison
	// Soon requests the first comparison a grace period after the start, not a period after it. It
	// finds what an earlier process may have left.
	Soon bool
	// Early is sent when there may be something to find. It may be nil.
	Early kube.Signal

	mu      sync.Mutex           // of unnamed, which keys that are lost remove from
	unnamed map[string]*leftover // by the IDs of resources that the last comparison found unnamed
	gained  kube.Signal          // sent when keys are gained
}

// comparison is what the inventory of one kind of resource does.
type comparison interface {
	// look compares, and changes nothing.
	look(ctx context.Context) (Findings, error)
	// tell requeues an object whose resource is not as the object says.
	tell(ctrl.Request)
	// period is the time between two comparisons. With 0 there are only those that Early requests, and
	// repetitions that an earlier result needs.
	period() time.Duration
}

// leftover is a resource that all comparisons since a time have found unnamed, and what became of its
// deletion. The pause before the next try grows: the cloud may refuse the deletion, or not end it, for
// hours.
type leftover struct {
	Resource
	since time.Time
	asked bool  // its deletion has been requested
	err   error // of the last try
	tries int
	next  time.Time // of the next try
}

// Setup adds the inventory to mgr.
func (v *Inventory) Setup(mgr ctrl.Manager) error {
	v.follow()
	return mgr.Add(kube.Runnable(v.Run))
}

// follow has Run compare a grace period after keys were gained. If their last owner crashed, it may have
// left something. If not, it may have found something once. What was seen of keys that are lost is
// forgotten, as another process may give it to an object.
func (v *Inventory) follow() {
	v.gained = kube.NewSignal()
	v.Shards.Follow(func(context.Context, kube.Keys, bool) { v.gained.Send() }, func(lost kube.Keys) {
		v.mu.Lock()
		defer v.mu.Unlock()
		maps.DeleteFunc(v.unnamed, func(_ string, l *leftover) bool { return lost(l.Key) })
	})
}

// longest is how many times the wait for the next comparison is doubled at most, while comparisons
// fail.
const longest = 4

// Run compares once a period, and whenever Early is sent, until ctx ends. With Soon it also
// compares a grace period after the start: serving pods comes first. A process without keys compares
// nothing. If several processes have keys, each has a period as many times as long.
//
// After an early comparison, or one with new findings, another one follows a grace period later. It
// confirms what must be found twice. A failed comparison is repeated, at growing intervals.
//
// Run is no kube.Every, as it ignores Early at times.
func (v *Inventory) Run(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName(v.Name)
	ctx = ctrl.LoggerInto(ctx, log)
	again, failures, early := v.Soon, 0, v.Early
	for {
		asked := false
		select {
		case <-ctx.Done():
			return nil
		case <-v.due(again, failures):
		case <-v.gained:
			again, failures = true, 0
			continue
		case <-early:
			asked = true
		}
		if v.Shards.Share() == 0 {
			continue
		}
		found, err := v.once(ctx)
		if err != nil && ctx.Err() == nil {
			log.Info("comparing the cloud's resources with the objects failed or is incomplete; Kuryr compares again", "because", err.Error())
		}
		again = asked || found || err != nil
		if failures++; asked || found || err == nil {
			failures = 0
		}
		if early = v.Early; again && failures == 0 {
			early = nil // a later comparison covers further requests
		}
	}
}

// due returns when to compare next without a request. It returns nil, which is never, without a
// period and without findings to confirm.
func (v *Inventory) due(again bool, failures int) <-chan time.Time {
	wait := v.period() * time.Duration(v.Shards.Members())
	if again {
		soon := v.grace() << min(failures, longest)
		if wait <= 0 || soon < wait {
			wait = soon
		}
	}
	if wait <= 0 {
		return nil
	}
	return time.After(wait)
}

func (v *Inventory) grace() time.Duration { return v.Settings.Load().Orphans.Grace.Duration }

// once compares, and handles what was found twice. It reports whether there are findings that
// another comparison must confirm.
func (v *Inventory) once(ctx context.Context) (again bool, err error) {
	found, err := v.look(ctx)
	if err != nil {
		return false, err
	}
	for _, req := range found.Differ {
		if req.Namespace == "" || v.Shards.Owns(kube.InNamespace(req.Namespace)) { // a port's node is not in its name: see ports.look
			v.tell(req)
		}
	}
	again, due, unsure := v.remember(found)
	return again, errors.Join(found.Unsure, unsure, v.collect(ctx, due))
}

// remember replaces the unnamed resources by those that were found, of own keys only. It returns
// those to handle now, and the errors of those that wait for their next try.
func (v *Inventory) remember(found Findings) (again bool, due []*leftover, failed error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	var unsure []error
	unnamed, now := map[string]*leftover{}, time.Now()
	for _, r := range found.Unnamed {
		if unnamed[r.ID] != nil || !v.Shards.Owns(r.Key) { // it is listed twice, or another process handles it
			continue
		}
		l, before := v.unnamed[r.ID]
		if !before {
			l = &leftover{since: now}
		} else if l.Revision != r.Revision { // somebody works with it
			l.since = now
		}
		unnamed[r.ID], l.Resource = l, r
		switch {
		case !before || now.Sub(l.since) < v.grace():
			again = true
		case now.Before(l.next):
			unsure = append(unsure, l.err)
		default:
			l.next = now.Add(v.grace() * (1<<min(l.tries, longest) - 1))
			l.tries++
			due = append(due, l)
		}
	}
	v.unnamed = unnamed
	return again, due, errors.Join(unsure...)
}

// atOnce is how many unnamed resources are handled concurrently. There may be thousands of them.
// The backend limits its own requests.
const atOnce = 8

// collect adopts or deletes unnamed resources. It returns an error if some of them still exist
// afterwards.
func (v *Inventory) collect(ctx context.Context, due []*leftover) error {
	failed := make([]error, len(due))
	var at errgroup.Group
	at.SetLimit(atOnce)
	for i, l := range due {
		at.Go(func() (none error) { // a resource that fails does not stop the others
			leave, mine := v.Shards.Enter(l.Key)
			if !mine { // it is being given away, or this process may be thought dead
				if v.Shards.Owns(l.Key) {
					failed[i] = fmt.Errorf("%s %s may have no owner, and this process may not begin work on it now", l.Kind.Name, l.ID)
				}
				return none
			}
			defer leave()
			if v.remembers(l) {
				l.asked, l.err = l.settle(ctx, l.asked)
				failed[i] = l.err
			}
			return none
		})
	}
	_ = at.Wait()
	return errors.Join(failed...)
}

// remembers reports whether a resource's key was not lost since the resource was found.
func (v *Inventory) remembers(l *leftover) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.unnamed[l.ID] == l
}

// settle adopts or deletes a resource. It reports whether the resource's deletion has been
// requested: now, or, as before says, earlier. Some deletions take their time, and the resource is
// listed until it is gone.
func (r Resource) settle(ctx context.Context, before bool) (asked bool, err error) {
	log := ctrl.LoggerFrom(ctx).WithValues("kind", r.Kind.Name, "id", r.ID, "owner", r.Owner.String())
	ctx = ctrl.LoggerInto(ctx, log)
	asked, err = r.decide(ctx, before)
	if err != nil {
		return before, fmt.Errorf("%s %s may have no owner: %w", r.Kind.Name, r.ID, err)
	}
	return asked || before, nil
}

var (
	portsAdopted           = kube.Counter("kuryr_orphan_ports_adopted_total", "Unmanaged ports of this cluster that were given to their pool.")
	orphansDeleted         = kube.Counter("kuryr_orphan_ports_deleted_total", "Unmanaged ports of this cluster that were deleted.")
	balancerOrphansDeleted = kube.CounterOf([]string{"kind"}, "kuryr_loadbalancer_orphans_deleted_total",
		"Load balancers, floating IPs, security groups and VIP ports of this cluster that no object knew of and that were deleted.")
	networkOrphansDeleted = kube.Counter("kuryr_network_orphans_deleted_total",
		"Networks of this cluster that no KuryrNetwork named and that were deleted, with their subnets.")
	routerOrphansDeleted = kube.Counter("kuryr_router_orphans_deleted_total", "Routers of this cluster that no KuryrNetwork named and that were deleted.")
)
