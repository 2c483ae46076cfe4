// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package ports

import (
	"context"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/plan/pool"
)

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
