// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kuryr-go/kuryr/internal/sdn"
)

// activity asks the SDN whether ports pass traffic, for types whose node cannot
// see it: all ports that wait with one call, and none while none waits.
type activity struct {
	cloud  sdn.Ports
	memory *memory
	seen   func(ctrl.Request) // wakes the port reconciler
}

// activityInterval is between two questions.
const activityInterval = 2 * time.Second

func (r *activity) run(ctx context.Context) error {
	tick := time.NewTicker(activityInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			r.look(ctx)
		}
	}
}

func (r *activity) look(ctx context.Context) {
	if !r.memory.awaitsActive() {
		return
	}
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
