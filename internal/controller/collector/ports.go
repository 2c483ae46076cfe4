// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/orphan"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// arrivals is what the collector wants of those who get ports for pools.
type arrivals interface {
	// Knows returns ports that are somebody's although no object says so, and pools
	// that have requests under way, which may have made some.
	Knows() (ports, busy map[string]bool)
	// Adopt gives a port to a pool, as if it had just been made.
	Adopt(r pool.Ref, port sdn.Port)
	// Freed says that a port is gone; r is zero if it is not known whose.
	Freed(r pool.Ref)
}

// PortOptions is what the collection of ports needs. All have to be given.
type PortOptions struct {
	Cloud    sdn.Ports
	Sees     func(ctx context.Context, projectID, networkID string) error // that of sdn.Visibility
	Settings *settings.Live
	Supply   arrivals
	Written  func() []string   // KuryrPorts that are written and may not be seen yet
	Lost     func(name string) // has the port reconciler see that the SDN has no such port
	Requeue  func(pool.Ref)    // plans a pool
	Look     kube.Signal       // sent when there may be something to be found
	NoObject func(ctx context.Context, name string) error
	Now      func() time.Time
}

// orphans compares the SDN's inventory with the objects, in both directions:
// ports that are nobody's go back to their pool, or are deleted if that is no
// more; KuryrPorts whose port is gone are said to be.
type orphans struct {
	PortOptions
	client client.Client

	nobodys orphan.Collector // ports without object
	missing orphan.Collector // objects without port

	stuck orphan.Collector // ports whose pod does not get to run
	asked map[string]bool  // of these, those that there has been a look for
}

// AddPorts adds the collection of ports, and what asks for it when a pod does not get
// to run, to mgr.
func AddPorts(mgr ctrl.Manager, o PortOptions) error {
	r := &orphans{PortOptions: o, client: mgr.GetClient()}
	if err := mgr.Add(kube.Leading(r.run)); err != nil {
		return err
	}
	return mgr.Add(kube.Leading(r.watch))
}

// longest is how often the wait for the next look is doubled at most, while looks
// are in vain.
const longest = 4

// run looks until ctx ends: a grace after the start, for what an earlier process
// may have left (serving pods comes first); when somebody asks for it; and every
// interval, if there is one. After a look that somebody asked for, and after one
// that found something new, there is another a grace later, for what has to be
// seen twice. One that was in vain is repeated, less and less often.
func (r *orphans) run(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("orphans")
	ctx = ctrl.LoggerInto(ctx, log)
	again, vain, early := true, 0, r.Look
	for {
		asked := false
		select {
		case <-ctx.Done():
			return nil
		case <-r.due(again, vain):
		case <-early:
			asked = true
		}
		found, err := r.look(ctx)
		if err != nil && ctx.Err() == nil {
			log.Info("the SDN's ports are to be compared with the KuryrPorts again", "because", err.Error())
		}
		again = asked || found || err != nil
		if vain++; asked || found || err == nil {
			vain = 0
		}
		if early = r.Look; again && vain == 0 {
			early = nil // what else is in doubt has its look then, or after it
		}
	}
}

// due returns when to look next if nobody asks for it, which is never if there is
// nothing to be seen again and no interval.
func (r *orphans) due(again bool, vain int) <-chan time.Time {
	o := r.Settings.Load().Orphans
	wait := o.Interval.Duration
	if again {
		soon := o.Grace.Duration << min(vain, longest)
		if wait <= 0 || soon < wait {
			wait = soon
		}
	}
	if wait <= 0 {
		return nil
	}
	return time.After(wait)
}

// look takes the objects' names before and after the SDN's list, and in between
// those that the process knows of: a port made meanwhile is in one of the later
// two, and one deleted meanwhile had an object before. It returns whether it found
// what is to be seen once more before anything is done about it.
func (r *orphans) look(ctx context.Context) (found bool, err error) {
	before, err := r.objects(ctx)
	if err != nil {
		return false, err
	}
	listed, err := r.Cloud.ListPorts(ctx)
	if err != nil {
		return false, fmt.Errorf("listing ports: %w", err)
	}
	remembered, busy := r.remembered()
	after, err := r.objects(ctx)
	if err != nil {
		return false, err
	}
	claimed, err := r.annotated(ctx)
	if err != nil {
		return false, err
	}
	var nobodys []string
	there, owners := map[string]bool{}, map[string]sdn.Owner{}
	for _, p := range listed {
		there[p.ID], owners[p.ID] = true, p.Owner
		if !before[p.ID].is && !after[p.ID].is && !claimed[p.ID] && !remembered[p.ID] {
			nobodys = append(nobodys, p.ID)
		}
	}
	missing, unseen := r.credible(ctx, without(before, after, there), before)
	grace := r.Settings.Load().Orphans.Grace.Duration
	due, gone := r.nobodys.Observe(nobodys, r.Now(), grace), r.missing.Observe(missing, r.Now(), grace)
	r.report(gone)
	r.report(backAgain(before, there))
	found = len(gone) < len(missing) || slices.ContainsFunc(nobodys, func(id string) bool {
		// A new one of a pool that asks for ports is most likely one of these.
		return !busy[owners[id].Name] && !slices.Contains(due, id)
	})
	return found, errors.Join(unseen, r.collect(ctx, due, owners, busy))
}

// credible returns those of the missing ports that the SDN would show if it had them,
// and why not all: a credential that has lost a role is shown none.
func (r *orphans) credible(ctx context.Context, missing []string, objects map[string]object) (gone []string, unseen error) {
	type place struct{ project, network string }
	sights := map[place]error{}
	for _, name := range missing {
		o := objects[name]
		at := place{o.project, o.network}
		err, asked := sights[at]
		if !asked {
			if err = r.Sees(ctx, at.project, at.network); err != nil {
				unseen = errors.Join(unseen, fmt.Errorf("KuryrPort %s and others have no port that is shown: %w", name, err))
			}
			sights[at] = err
		}
		if err == nil {
			gone = append(gone, name)
		}
	}
	return gone, unseen
}

// backAgain returns the objects that say that the SDN has lost their port, which it
// shows.
func backAgain(objects map[string]object, there map[string]bool) (names []string) {
	for name, o := range objects {
		if o.lost && there[name] {
			names = append(names, name)
		}
	}
	return names
}

// remembered returns the ports that the process knows of. One that arrives is asked for
// before it is written, so it is looked for in this order.
func (r *orphans) remembered() (ports, busy map[string]bool) {
	ports, busy = r.Supply.Knows()
	for _, name := range r.Written() {
		ports[name] = true
	}
	return ports, busy
}

// object is whether there is a KuryrPort, whether it is to stay, whether it says that the
// SDN has lost its port, and where that is.
type object struct {
	is, stays, lost  bool
	project, network string
}

func (r *orphans) objects(ctx context.Context) (map[string]object, error) {
	var list v1.KuryrPortList
	if err := r.client.List(ctx, &list, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing KuryrPorts: %w", err)
	}
	names := make(map[string]object, len(list.Items))
	for i := range list.Items {
		p := &list.Items[i]
		names[p.Name] = object{
			is: true, stays: p.DeletionTimestamp.IsZero(), lost: p.Lost(), project: p.Spec.ProjectID, network: p.Spec.NetworkID,
		}
	}
	return names, nil
}

// annotated returns the ports that living pods say they have. Most have an
// object; one that has not is about to get it back.
func (r *orphans) annotated(ctx context.Context) (map[string]bool, error) {
	var list corev1.PodList
	if err := r.client.List(ctx, &list, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	ports := map[string]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		if !kube.Annotated(pod) || pool.Finished(pod) || pod.Spec.HostNetwork {
			continue
		}
		named, err := v1.ParseVIFs(kube.Annotation(pod))
		if err != nil {
			continue // nonsense that somebody wrote
		}
		for _, id := range named {
			ports[id] = true
		}
	}
	return ports, nil
}

// collectors is how many ports that are nobody's are seen to at once: there may be
// thousands, and the backend bounds its own calls.
const collectors = 8

// collect sees to ports that are nobody's. It returns an error if some are still
// there, and nobody's, after it.
func (r *orphans) collect(ctx context.Context, ids []string, owners map[string]sdn.Owner, busy map[string]bool) error {
	failed := make([]error, len(ids))
	var at errgroup.Group
	at.SetLimit(collectors)
	for i, id := range ids {
		if busy[owners[id].Name] {
			failed[i] = fmt.Errorf("port %s may be of the request that pool %s has under way", id, owners[id].Name)
			continue
		}
		ctx := ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues("port", id))
		at.Go(func() error {
			if err := r.settle(ctx, id, owners[id]); err != nil {
				failed[i] = fmt.Errorf("port %s seems to belong to nobody: %w", id, err)
			}
			return nil // of one that stays the others are seen to all the same
		})
	}
	_ = at.Wait()
	return errors.Join(failed...)
}

// settle gives a port that is nobody's to its pool, or deletes it.
func (r *orphans) settle(ctx context.Context, id string, owner sdn.Owner) error {
	log := ctrl.LoggerFrom(ctx)
	if err := r.NoObject(ctx, id); err != nil {
		return err
	}
	adopted, err := r.adopt(ctx, id, owner)
	if err != nil {
		return err
	}
	if adopted {
		log.Info("gave port that belonged to nobody to its pool", "pool", owner.Name)
		portsAdopted.Inc()
		return nil
	}
	if err := r.Cloud.DeletePort(ctx, id); err != nil {
		return fmt.Errorf("deleting it: %w", err)
	}
	log.Info("deleted port that belonged to nobody")
	orphansDeleted.Inc()
	r.Supply.Freed(pool.Ref{})
	return nil
}

// adopt gives a port to the pool that it was made for, if there still is one: a
// process that was stopped had asked for it and did not come to write it down.
// The pool's next plan makes its object, or gives it up.
func (r *orphans) adopt(ctx context.Context, id string, owner sdn.Owner) (adopted bool, err error) {
	if owner.Kind != sdn.KindPool {
		return false, nil
	}
	var object v1.KuryrPortPool
	err = r.client.Get(ctx, client.ObjectKey{Name: owner.Name}, &object, kube.ReadOnly)
	if apierrors.IsNotFound(err) || err == nil && !object.DeletionTimestamp.IsZero() {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading KuryrPortPool %s: %w", owner.Name, err)
	}
	port, err := r.Cloud.Port(ctx, id)
	if err != nil {
		return false, fmt.Errorf("reading port %s: %w", id, err)
	}
	if !fresh(port, &object.Spec.Key) {
		return false, nil
	}
	req := pool.Ref{Pool: owner.Name, Node: object.Spec.Key.NodeName}
	r.Supply.Adopt(req, port)
	r.Requeue(req)
	return true, nil
}

// fresh reports whether a port is as those of the pool are when they are made,
// and nothing is plugged that has it. A subport is active from the start. One with
// other security groups, as `kuryr adopt` may leave it if it is stopped, could get
// to a pod with these.
func fresh(port sdn.Port, key *v1.PoolKey) bool {
	if port.Name != sdn.FreePortName || port.DeviceID != "" || port.VIF.ParentPortID != key.ParentPortID ||
		!v1.SameGroups(port.SecurityGroupIDs, key.SecurityGroupIDs) {
		return false
	}
	if key.ParentPortID != "" {
		return true
	}
	return port.Host == key.NodeName && !port.Active && bindable(port.VIF.Type, key)
}

// bindable reports whether the SDN could bind a port of this type to its host. One
// that it could not is left by a process that ended before it was deleted.
func bindable(vifType string, key *v1.PoolKey) bool {
	switch vifType {
	case "binding-failed":
		return false
	case "unbound", "":
		return key.VIFType != ""
	}
	return true
}

// report lets the port reconciler see for itself: it owns the status.
func (r *orphans) report(names []string) {
	for _, name := range names {
		r.Lost(name)
	}
}

// without returns the objects that are to stay and whose port is not there.
func without(before, after map[string]object, there map[string]bool) []string {
	var out []string
	for name := range before {
		if after[name].stays && !there[name] {
			out = append(out, name)
		}
	}
	return out
}

var (
	portsAdopted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kuryr_orphan_ports_adopted_total",
		Help: "Ports of this cluster that no object knew of and that were given to their pool.",
	})
	orphansDeleted = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "kuryr_orphan_ports_deleted_total",
		Help: "Ports of this cluster that belonged to nobody and were deleted.",
	})
)

func init() { metrics.Registry.MustRegister(portsAdopted, orphansDeleted) }
