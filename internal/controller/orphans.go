// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/orphan"
	"github.com/kuryr-go/kuryr/internal/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// orphans compares the SDN's inventory with the objects, in both directions:
// ports that are nobody's are deleted, KuryrPorts whose port is gone are said to be.
type orphans struct {
	client   client.Client
	live     client.Reader // past the cache
	cloud    sdn.Ports
	settings *Live
	memory   *memory
	now      func() time.Time
	lost     func(ctrl.Request) // wakes the port reconciler
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
	there := map[string]bool{}
	for _, p := range listed {
		there[p.ID] = true
		if !after[p.ID] && !claimed[p.ID] && !remembered[p.ID] && !busy[p.Owner.Name] {
			nobodys = append(nobodys, p.ID)
		}
	}
	grace := r.settings.Load().Orphans.Grace.Duration
	due := r.nobodys.Observe(nobodys, r.now(), grace)
	r.collect(ctx, due)
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

func (r *orphans) collect(ctx context.Context, ids []string) {
	log := ctrl.LoggerFrom(ctx)
	for _, id := range ids {
		if err := noObject(ctx, r.live, id); err != nil {
			log.Info("left a port alone that seemed to belong to nobody", "port", id, "because", err.Error())
			continue
		}
		if err := r.cloud.DeletePort(ctx, id); err != nil {
			log.Info("could not delete a port that belongs to nobody", "port", id, "error", err.Error())
			continue
		}
		log.Info("deleted port that belonged to nobody", "port", id)
		orphansDeleted.Inc()
		r.memory.portFreed(poolRequest{})
	}
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
