// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

var routerOrphansDeleted = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "kuryr_router_orphans_deleted_total",
	Help: "Routers of this cluster that no KuryrNetwork named and that were deleted.",
})

func init() { metrics.Registry.MustRegister(routerOrphansDeleted) }

// listRouters returns the routers that Kuryr has made. Without a KuryrNetwork that has or had one,
// and without a configuration that asks for some, it asks for none.
func (n *networks) listRouters(ctx context.Context, objects map[ctrl.Request]*v1.KuryrNetwork) ([]sdn.RouterSummary, error) {
	for _, kn := range objects {
		n.routed = n.routed || kn.Spec.Router != nil
	}
	if !n.routed && !n.Settings.Rules().RoutersByNamespace {
		return nil, nil
	}
	n.routed = true
	return n.Cloud.ListRouters(ctx)
}

// compareRouters adds the routers that no KuryrNetwork names, and the KuryrNetworks whose router is
// missing in a list of all routers of its project. The objects were listed before and after the
// routers.
func (n *networks) compareRouters(found *Findings, all []sdn.RouterSummary, lacks error, before, after map[ctrl.Request]*v1.KuryrNetwork) {
	if !n.routed {
		return
	}
	there := map[string]bool{}
	for _, r := range all {
		there[r.ID] = true
		if r.Owner.Kind == sdn.KindNetwork && !namesRouter(after[kube.OwnerRequest(r.Owner)], r.ID) {
			found.Unnamed = append(found.Unnamed, Resource{Kind: n.router, ID: r.ID, Owner: r.Owner})
		}
	}
	for req, kn := range before {
		id := kn.Status.RouterID
		if kn.Spec.Router != nil && id != "" && !there[id] && sdn.ErrorIn(kn.Spec.ProjectID, lacks) == nil && meta.IsStatusConditionTrue(kn.Status.Conditions, v1.ConditionReady) {
			found.Missing = append(found.Missing, req)
		}
	}
}

// namesRouter reports whether a KuryrNetwork names a router as its own, or may be about to.
func namesRouter(kn *v1.KuryrNetwork, id string) bool {
	return kn != nil && kn.Spec.Router != nil && (kn.Status.RouterID == "" || kn.Status.RouterID == id)
}

func (n *networks) routerWanted(ctx context.Context, r Resource) (bool, error) {
	var kn v1.KuryrNetwork
	err := n.live.Get(ctx, kube.OwnerRequest(r.Owner).NamespacedName, &kn)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading KuryrNetwork %s: %w", kube.OwnerRequest(r.Owner), err)
	}
	return namesRouter(&kn, r.ID), nil
}

// deleteRouter deletes a router without interfaces. Those of a network that is left over, too, are
// removed with the network, which stays while somebody has a port in it.
func (n *networks) deleteRouter(ctx context.Context, r Resource) (bool, error) {
	err := n.Cloud.DeleteRouter(ctx, r.ID)
	return err == nil, inUse(err)
}
