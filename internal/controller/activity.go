// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// activity asks the SDN whether ports pass traffic, for types whose node cannot
// see it: all ports that wait with one call, and none while none waits.
type activity struct {
	cloud  sdn.Ports
	memory *portMemory
	seen   func(ctrl.Request) // wakes the port reconciler
}

// How long it is between two questions: twice as long after each that brought
// nothing new, as a port whose host is down may wait for days. Whether another
// port waits is looked at every activitySoonest.
const (
	activitySoonest = 2 * time.Second
	activityLatest  = 30 * time.Second
)

func (r *activity) run(ctx context.Context) error {
	tick := time.NewTicker(activitySoonest)
	defer tick.Stop()
	var waited []string
	var gap, since time.Duration
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		since += activitySoonest
		waiting := r.memory.awaitActives()
		if !slices.Equal(waiting, waited) {
			waited, gap = waiting, 0
		}
		if len(waiting) > 0 && since >= gap {
			r.look(ctx)
			gap, since = min(activityLatest, max(activitySoonest, 2*gap)), 0
		}
	}
}

func (r *activity) look(ctx context.Context) {
	listed, err := r.cloud.ListPorts(ctx)
	if err != nil {
		ctrl.LoggerFrom(ctx).V(1).Info("could not ask which ports are active", "error", err.Error())
		return
	}
	for _, p := range listed {
		if p.Active && r.memory.isActive(p.ID) {
			r.seen(ctrl.Request{NamespacedName: types.NamespacedName{Name: p.ID}})
		}
	}
}
