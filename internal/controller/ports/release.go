// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

// release lets a KuryrPort go.
func (r *Reconciler) release(ctx context.Context, port *v1.KuryrPort) (ctrl.Result, error) {
	if !controllerutil.ContainsFinalizer(port, v1.PortFinalizer) {
		return ctrl.Result{}, nil
	}
	pod, err := r.orphaned(ctx, port)
	if err != nil {
		return ctrl.Result{}, err
	}
	if pod != nil && !port.Lost() { // of a lost one there is nothing to put back
		return r.handBack(ctx, port, pod)
	}
	if port.Status.Phase != v1.PortDeleting { // else it says more: why the SDN has not deleted it
		if err := r.write(ctx, port, r.status(port, v1.ReasonPending, errDeleting)); err != nil {
			return kube.Retry(err)
		}
	}
	// To delete what is gone is a success, so it is asked before whether the port would
	// be seen: not its network, which may have gone with it.
	err = r.sees(ctx, port.Spec.ProjectID, "")
	if err == nil {
		err = r.cloud.DeletePort(ctx, port.Name)
	}
	if err != nil {
		return r.report(ctx, port, fmt.Errorf("deleting port %s: %w", port.Name, err))
	}
	ctrl.LoggerFrom(ctx).Info("deleted port", "port", port.Name)
	r.supply.Freed(pool.Ref{Pool: port.Spec.Pool, Node: port.Spec.NodeName})
	return kube.Retry(r.drop(ctx, port))
}

// drop lets the API server delete the object. That is not a version the cache
// will show, as the last finalizer goes together with the object.
func (r *Reconciler) drop(ctx context.Context, port *v1.KuryrPort) error {
	err := r.patch(ctx, port, func(p *v1.KuryrPort) { controllerutil.RemoveFinalizer(p, v1.PortFinalizer) })
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.dropped[port.Name] = port.UID
	}
	return err
}
