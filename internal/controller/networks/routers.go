// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package networks

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// lookAtAll returns the network and, if it is to have a router of its own, the router that the cloud
// has for the KuryrNetwork; each without an ID if there is none.
func (v *reconciliation) lookAtAll(ctx context.Context) (is sdn.Network, own sdn.OwnRouter, err error) {
	is, err = v.look(ctx)
	if err == nil && v.kn.Spec.Router != nil && (is.ID != "" || !v.memory.fresh) { // a router is made after its network
		own, err = v.lookAtRouter(ctx)
	}
	return is, own, err
}

// lookAtRouter returns the router that the cloud has for the KuryrNetwork. One that somebody has
// deleted may be made again: its interfaces were removed before, and ports do not depend on it.
func (v *reconciliation) lookAtRouter(ctx context.Context) (sdn.OwnRouter, error) {
	is, err := v.namedRouter(ctx)
	if is.ID != "" || err != nil {
		return is, err
	}
	all, err := v.listed(ctx, routersList, v.Cloud.ListRouters)
	if err != nil {
		return is, err
	}
	if len(all) == 0 {
		if id := v.kn.Status.RouterID; id != "" {
			if err := v.absent(ctx); err != nil {
				return is, fmt.Errorf("looking for router %s: %w", id, err)
			}
		}
		return is, nil
	}
	is, err = v.Cloud.Router(ctx, all[0].ID)
	if err != nil {
		return sdn.OwnRouter{}, fmt.Errorf("reading router %s: %w", all[0].ID, err)
	}
	return is, nil
}

// namedRouter returns the router that the status names, if it is the KuryrNetwork's own; otherwise one
// without an ID.
func (v *reconciliation) namedRouter(ctx context.Context) (sdn.OwnRouter, error) {
	id := v.kn.Status.RouterID
	if id == "" {
		return sdn.OwnRouter{}, nil
	}
	is, err := v.Cloud.Router(ctx, id)
	switch {
	case errors.Is(err, sdn.ErrNotFound), err == nil && !v.owns(is.Owner, is.Name):
		return sdn.OwnRouter{}, nil
	case err != nil:
		return sdn.OwnRouter{}, fmt.Errorf("reading router %s: %w", id, err)
	}
	return is, nil
}

// routerOf returns the router of the network as far as it is known without a request.
func (v *reconciliation) routerOf(own sdn.OwnRouter) network.Router {
	if v.kn.Spec.Router != nil {
		return network.Router{ID: own.ID, Outside: own.Addresses}
	}
	return network.Router{ID: v.kn.Spec.RouterID}
}

// router returns the router of the network: an existing one, or its own, which it makes or changes.
func (v *reconciliation) router(ctx context.Context, own sdn.OwnRouter) (is network.Router, err error) {
	switch {
	case v.kn.Spec.Router != nil:
		own, err = v.makeRouter(ctx, own)
		is = v.routerOf(own)
	case v.kn.Spec.RouterID != "":
		is = v.routerOf(own)
		is.Outside, err = v.addresses(ctx, is.ID)
	}
	return is, err
}

// makeRouter makes the network's own router, or gives it the wanted gateway and routes. It returns
// what there is, also if it fails.
func (v *reconciliation) makeRouter(ctx context.Context, is sdn.OwnRouter) (sdn.OwnRouter, error) {
	work := network.MissingRouter(v.req.Namespace, &v.kn.Spec, is)
	if work.Create != nil {
		created, err := v.Cloud.CreateRouter(ctx, v.owner(), *work.Create)
		v.forgetList(routersList)
		if err != nil {
			return is, fmt.Errorf("creating the router of namespace %s with a gateway in network %s: %w", v.req.Namespace, work.Create.Gateway.NetworkID, err)
		}
		ctrl.LoggerFrom(ctx).Info("created router", "router", created.ID, "project", v.kn.Spec.ProjectID)
		is = created
		work = network.MissingRouter(v.req.Namespace, &v.kn.Spec, is)
	}
	if work.Update == nil {
		return is, nil
	}
	no := &v.memory.refused
	if work.Update.Gateway != nil && no.generation == v.kn.Generation && time.Now().Before(no.until) {
		return is, no.err
	}
	updated, err := v.Cloud.UpdateRouter(ctx, is.ID, *work.Update)
	if err != nil {
		err = fmt.Errorf("changing gateway or routes of router %s of namespace %s: %w", is.ID, v.req.Namespace, err)
		if !errors.Is(err, sdn.ErrUnavailable) {
			no.generation, no.err, no.until = v.kn.Generation, err, time.Now().Add(v.period())
		}
		if updated.ID != "" {
			is = updated
		}
		return is, err
	}
	ctrl.LoggerFrom(ctx).Info("changed router", "router", is.ID)
	return updated, nil
}

// removeRouter deletes the network's own router. Its interfaces have to be removed before. It needs
// no status: one that names no router, or that of somebody else, leaves owner and name to decide.
func (v *reconciliation) removeRouter(ctx context.Context) error {
	if v.kn.Spec.Router == nil {
		return nil
	}
	is, err := v.namedRouter(ctx)
	if err != nil {
		return err
	}
	if is.ID != "" {
		return v.deleteRouter(ctx, is.ID)
	}
	all, err := v.listed(ctx, routersList, v.Cloud.ListRouters)
	if len(all) == 0 && err == nil {
		return v.absent(ctx)
	}
	for _, r := range all {
		if err = v.deleteRouter(ctx, r.ID); err != nil {
			break
		}
	}
	return err
}

func (v *reconciliation) deleteRouter(ctx context.Context, id string) error {
	if err := v.Cloud.DeleteRouter(ctx, id); err != nil {
		return fmt.Errorf("deleting router %s: %w. `openstack port list --router %s` shows its interfaces", id, err, id)
	}
	ctrl.LoggerFrom(ctx).Info("deleted router", "router", id)
	return nil
}

// addresses returns the addresses of a router in its external network. Many namespaces share a router,
// so they are kept for a while. None are known if the credential may not see them: pods do not need
// them.
func (v *reconciliation) addresses(ctx context.Context, id string) ([]netip.Addr, error) {
	return v.routers.Get(ctx, id, v.period(), func(ctx context.Context) ([]netip.Addr, error) {
		all, err := v.Cloud.RouterAddresses(ctx, id)
		if errors.Is(err, sdn.ErrForbidden) {
			ctrl.LoggerFrom(ctx).Info("cannot read the addresses of a router; nodeRoutes of KuryrNetworks stay empty", "router", id, "error", err.Error())
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading router %s: %w", id, err)
		}
		return all, nil
	})
}
