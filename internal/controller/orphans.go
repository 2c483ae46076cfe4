// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/orphan"
	"github.com/kuryr-go/kuryr/internal/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// orphans compares the SDN's inventory with the objects, in both directions:
// ports that are nobody's go back to their pool, or are deleted if that is no
// more; KuryrPorts whose port is gone are said to be.
type orphans struct {
	client   client.Client
	live     client.Reader // past the cache
	cloud    sdn.Ports
	settings *Live
	memory   *memory
	now      func() time.Time
	lost     func(ctrl.Request) // wakes the port reconciler
	arrived  func(poolRequest)  // wakes a pool
	early    chan struct{}      // holds one token: look soon

	nobodys orphan.Collector // ports without object
	missing orphan.Collector // objects without port
}

// hurry asks for a look soon. It does not wait.
func (r *orphans) hurry() {
	select {
	case r.early <- struct{}{}:
	default: // asked already
	}
}

// run looks every interval until ctx ends. The first look is an interval after
// the start: serving pods comes first. After a look that somebody asked for, and
// after one that found something new, the next is a grace later: what has to be
// seen twice need not wait for longer. Changed settings ask for a look, too: a
// shorter interval begins at once and not when the longer one is over.
func (r *orphans) run(ctx context.Context) error {
	log := ctrl.LoggerFrom(ctx).WithName("orphans")
	ctx = ctrl.LoggerInto(ctx, log)
	again := false
	for {
		wait, early := r.interval(), r.early
		if again {
			wait, early = min(wait, r.settings.Load().Orphans.Grace.Duration), nil
		}
		asked := false
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		case <-early:
			asked = true
		}
		found, err := r.look(ctx)
		again = asked || found
		if err != nil && ctx.Err() == nil {
			log.Info("could not compare the SDN's ports with the KuryrPorts", "error", err.Error())
		}
	}
}

func (r *orphans) interval() time.Duration {
	if d := r.settings.Load().Orphans.Interval.Duration; d > 0 {
		return d
	}
	return 2 * time.Minute
}

// look takes the objects' names before and after the SDN's list: a port made in
// between has an object after it, an object made in between is not before it. It
// returns whether it found ports that are nobody's and not yet due.
func (r *orphans) look(ctx context.Context) (found bool, err error) {
	before, err := r.objects(ctx)
	if err != nil {
		return false, err
	}
	listed, err := r.cloud.ListPorts(ctx)
	if err != nil {
		return false, fmt.Errorf("listing ports: %w", err)
	}
	after, err := r.objects(ctx)
	if err != nil {
		return false, err
	}
	claimed, err := r.annotated(ctx)
	if err != nil {
		return false, err
	}
	remembered, busy := r.memory.knows()
	var nobodys []string
	there, owners := map[string]bool{}, map[string]sdn.Owner{}
	for _, p := range listed {
		there[p.ID], owners[p.ID] = true, p.Owner
		if !after[p.ID] && !claimed[p.ID] && !remembered[p.ID] && !busy[p.Owner.Name] {
			nobodys = append(nobodys, p.ID)
		}
	}
	grace := r.settings.Load().Orphans.Grace.Duration
	due := r.nobodys.Observe(nobodys, r.now(), grace)
	r.collect(ctx, due, owners)
	r.report(r.missing.Observe(without(before, there), r.now(), grace))
	return len(due) < len(nobodys), nil
}

func (r *orphans) objects(ctx context.Context) (map[string]bool, error) {
	var list v1.KuryrPortList
	if err := r.client.List(ctx, &list, readOnly); err != nil {
		return nil, fmt.Errorf("listing KuryrPorts: %w", err)
	}
	names := make(map[string]bool, len(list.Items))
	for i := range list.Items {
		names[list.Items[i].Name] = true
	}
	return names, nil
}

// annotated returns the ports that living pods say they have. Most have an
// object; one that has not is about to get it back.
func (r *orphans) annotated(ctx context.Context) (map[string]bool, error) {
	var list corev1.PodList
	if err := r.client.List(ctx, &list, readOnly); err != nil {
		return nil, fmt.Errorf("listing pods: %w", err)
	}
	ports := map[string]bool{}
	for i := range list.Items {
		pod := &list.Items[i]
		if !annotated(pod) || pool.Finished(pod) || pod.Spec.HostNetwork {
			continue
		}
		named, err := parseVIFs(annotation(pod))
		if err != nil {
			continue // nonsense that somebody wrote
		}
		for _, id := range named {
			ports[id] = true
		}
	}
	return ports, nil
}

func (r *orphans) collect(ctx context.Context, ids []string, owners map[string]sdn.Owner) {
	for _, id := range ids {
		ctx := ctrl.LoggerInto(ctx, ctrl.LoggerFrom(ctx).WithValues("port", id))
		log := ctrl.LoggerFrom(ctx)
		if err := noObject(ctx, r.live, id); err != nil {
			log.Info("left a port alone that seemed to belong to nobody", "because", err.Error())
			continue
		}
		adopted, err := r.adopt(ctx, id, owners[id])
		if err != nil {
			log.Info("could not look at a port that belongs to nobody", "error", err.Error())
			continue
		}
		if adopted {
			log.Info("gave port that belonged to nobody to its pool", "pool", owners[id].Name)
			portsAdopted.Inc()
			continue
		}
		if err := r.cloud.DeletePort(ctx, id); err != nil {
			log.Info("could not delete a port that belongs to nobody", "error", err.Error())
			continue
		}
		log.Info("deleted port that belonged to nobody")
		orphansDeleted.Inc()
		r.memory.portFreed(poolRequest{})
	}
}

// adopt gives a port to the pool that it was made for, if there still is one: a
// process that was stopped had asked for it and did not come to write it down.
// The pool's next plan makes its object, or gives it up.
func (r *orphans) adopt(ctx context.Context, id string, owner sdn.Owner) (adopted bool, err error) {
	if owner.Kind != ownerKind {
		return false, nil
	}
	var object v1.KuryrPortPool
	err = r.client.Get(ctx, client.ObjectKey{Name: owner.Name}, &object, readOnly)
	if apierrors.IsNotFound(err) || err == nil && !object.DeletionTimestamp.IsZero() {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading KuryrPortPool %s: %w", owner.Name, err)
	}
	port, err := r.cloud.Port(ctx, id)
	if err != nil {
		return false, fmt.Errorf("reading port %s: %w", id, err)
	}
	if !fresh(port, &object.Spec.Key) {
		return false, nil
	}
	req := poolRequest{owner.Name, object.Spec.Key.NodeName}
	r.memory.with(req, func(p *poolMemory) { p.arrived[id] = arrival{port: port} })
	r.arrived(req)
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
		r.memory.setGone(name, true)
		r.lost(ctrl.Request{NamespacedName: types.NamespacedName{Name: name}})
	}
}

func without(names, there map[string]bool) []string {
	var out []string
	for name := range names {
		if !there[name] {
			out = append(out, name)
		}
	}
	return out
}
