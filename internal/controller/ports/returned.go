// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// Returned ports: the SDN is asked for their security groups before they are free. If a person has
// changed the groups in the SDN, the next pod would get the changed ones.
//
// One request is for all ports that come back at about the same time. A port does not wait
// long: while the SDN does not answer, and after a start, it becomes free unchecked, and is
// checked later.

// returnPatience is for how many gaps a port waits for its check. By default that is less than
// the cooldown, during which no pod gets the port.
const returnPatience = 5

// check is the check of a returned port. The zero value is none.
type check struct {
	generation int64     // of the port
	until      time.Time // the port waits for the check until then
	state      checkState
}

type checkState int

const (
	checked       checkState = iota
	checkAwaited             // the port waits for the check
	checkOverdue             // the port is free, and was not checked
	groupsChanged            // the port has other groups
)

// awaitCheck returns how long a returned port waits for its check; zero if it does not wait. The
// check itself requeues it earlier.
func (r *Reconciler) awaitCheck(port *v1.KuryrPort) (wait time.Duration) {
	r.memory.change(port.Name, func(n *portNote) {
		n.node = port.Spec.NodeName
		if n.check.generation != port.Generation {
			n.check = check{port.Generation, time.Now().Add(returnPatience * r.StatusGap), checkAwaited}
			r.checks.Send()
		}
		if wait = time.Until(n.check.until); n.check.state != checkAwaited {
			wait = 0
		} else if wait <= 0 {
			n.check.state = checkOverdue
		}
	})
	return max(0, wait)
}

// runChecks checks returned ports until ctx ends. It begins a grace period after the start.
func (r *Reconciler) runChecks(ctx context.Context) error {
	if !kube.Pause(ctx, r.Settings.Load().Orphans.Grace.Duration) {
		return nil
	}
	failures := 0
	return kube.Every("returns", func() time.Duration { return kube.Never }, func(ctx context.Context) error {
		if !kube.Pause(ctx, r.StatusGap/10) { // more ports may come back
			return nil
		}
		err, wait := r.checkReturned(ctx), r.StatusGap
		if failures++; err == nil {
			failures = 0
		} else {
			ctrl.LoggerFrom(ctx).Info("cannot read the security groups of returned ports; the ports are free nevertheless", "error", err.Error())
			wait = r.Backoff.Delay(err, failures)
			r.checks.Send()
		}
		kube.Pause(ctx, wait)
		return nil
	}, r.checks)(ctx)
}

// checkReturned asks for all ports that have to be checked.
func (r *Reconciler) checkReturned(ctx context.Context) error {
	asked := r.memory.unchecked()
	if len(asked) == 0 {
		return nil
	}
	states, failed := r.Ports.States(ctx, slices.Sorted(maps.Keys(asked)))
	for name, generation := range asked {
		var port v1.KuryrPort
		if err := r.client.Get(ctx, client.ObjectKey{Name: name}, &port, kube.ReadOnly); err != nil {
			r.memory.grouped(name) // it was deleted
			continue
		}
		r.keepCheck(&port, generation, states, failed)
	}
	return failed
}

// keepCheck keeps the SDN's answer about a port that was returned with this generation; by now it may
// have a pod. It requeues a port that waits, has other groups, or is not there.
func (r *Reconciler) keepCheck(port *v1.KuryrPort, generation int64, states map[string]sdn.PortState, failed error) {
	state, there := states[port.Name]
	requeue := false
	r.memory.change(port.Name, func(n *portNote) {
		if n.check.generation != generation {
			return
		}
		requeue = n.check.state == checkAwaited
		switch {
		case failed != nil:
			n.check.state = checkOverdue
		case there && !v1.SameGroups(port.Spec.SecurityGroupIDs, state.SecurityGroupIDs):
			n.check.state, requeue = groupsChanged, true
		case requeue:
			n.check.state, n.gone = checked, !there // the reconciler asks whether it has lost the port
		default:
			n.check, n.gone, requeue = check{}, !there, !there
		}
	})
	if requeue {
		r.queue.Add(named(port.Name))
	}
}

// release deletes the port of a deleted KuryrPort, or keeps it for a living pod.
func (r *Reconciler) release(ctx context.Context, port *v1.KuryrPort) (ctrl.Result, error) {
	if !r.objects.Held(port) {
		return ctrl.Result{}, nil
	}
	pod, err := r.livingPod(ctx, port)
	if err != nil {
		return ctrl.Result{}, err
	}
	if pod != nil && !port.Lost() { // a lost port cannot be kept
		return r.reattach(ctx, port, pod)
	}
	// A status in this phase may already say why the SDN has not deleted the port.
	if port.Status.Phase != v1.PortDeleting {
		if err := r.write(ctx, port, r.status(port, v1.ReasonPending, errDeleting)); err != nil {
			return kube.Retry(err)
		}
	}
	// Deleting a port that does not exist succeeds. So the credential is checked first, without
	// the network, which may be deleted already.
	err = r.Visibility.Sees(ctx, port.Spec.ProjectID, "")
	if err == nil {
		err = r.Ports.DeletePort(ctx, port.Name)
	}
	if err != nil {
		return r.report(ctx, port, fmt.Errorf("deleting port %s: %w", port.Name, err))
	}
	ctrl.LoggerFrom(ctx).Info("deleted port", "port", port.Name)
	r.Room.Freed(pool.Ref{Pool: port.Spec.Pool, Node: port.Spec.NodeName})
	return kube.Retry(r.objects.Drop(ctx, port))
}
