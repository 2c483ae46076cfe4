// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/plan/network"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

// networks compares the networks of the cloud with the KuryrNetworks. A network is left over when a
// process was stopped before it could name the network and its KuryrNetwork is gone, and when the
// answer to its creation was lost and it was made twice.
type networks struct {
	NetworkOptions
	client          client.Reader
	live            client.Reader // reads past the cache
	network, router *Kind
	routed          bool // a KuryrNetwork with a router of its own was seen
}

// NetworkOptions is what the collection of networks needs beyond the manager.
type NetworkOptions struct {
	Cloud    NetworkCloud
	Settings *settings.Live
	Shards   kube.Shards
	Making   *kube.Owners // held while a network is made and named for a KuryrNetwork
	Applier  networkApplier
	Thorough bool // routers are compared also if no object and no setting asks for any
}

const unnamedNetwork = "no KuryrNetwork names it"

// networkApplier checks a KuryrNetwork in the cloud, soon.
type networkApplier interface{ RequestCheck(req ctrl.Request) }

// NetworkCloud is what the SDN does for the collection of networks.
type NetworkCloud interface {
	sdn.Networks
	sdn.Routers
}

// Networks returns the inventory of networks and of the routers that Kuryr has made for them. One
// list compares all networks; it shows no subnets. Another one compares all routers.
func Networks(from source, o NetworkOptions) *Inventory {
	n := &networks{NetworkOptions: o, client: from.GetClient(), live: from.GetAPIReader(), routed: o.Thorough}
	n.network = &Kind{Name: "network", From: from, Making: o.Making, Wanted: n.wanted, Delete: n.delete, Deleted: networkOrphansDeleted, WhyDelete: unnamedNetwork}
	// Interfaces in a network that is left over, too, are removed with the network, which stays while somebody has a port in it.
	deleteRouter := func(ctx context.Context, r Resource) error { return ifUsed(o.Cloud.DeleteRouter(ctx, r.ID)) }
	n.router = &Kind{Name: "router", From: from, Making: o.Making, Wanted: n.wanted, Delete: deleteRouter, Deleted: routerOrphansDeleted, WhyDelete: unnamedNetwork}
	return &Inventory{Name: "networks", Settings: o.Settings, Shards: o.Shards, comparison: n}
}

func (n *networks) tell(req ctrl.Request) { n.Applier.RequestCheck(req) }

func (n *networks) period() time.Duration {
	s := n.Settings.Load()
	return period(s, settings.CheckInterval(s.Services.CheckInterval.Duration))
}

// look lists the objects before and after the networks, so a network that is made between the lists
// has an object in the second list.
func (n *networks) look(ctx context.Context) (found Findings, err error) {
	before, err := kube.All[*v1.KuryrNetwork](ctx, n.client, &v1.KuryrNetworkList{})
	if err != nil {
		return found, err
	}
	all, lacks := n.Cloud.ListNetworks(ctx)
	if lacks != nil && sdn.Partial(lacks) == nil {
		return found, fmt.Errorf("listing networks: %w", lacks)
	}
	routers, routersLack := n.listRouters(ctx, before)
	if routersLack != nil && sdn.Partial(routersLack) == nil {
		return found, fmt.Errorf("listing routers: %w", routersLack)
	}
	after, err := kube.All[*v1.KuryrNetwork](ctx, n.client, &v1.KuryrNetworkList{})
	if err != nil {
		return found, err
	}
	n.compare(&found, n.network, all, lacks, before, after)
	n.compare(&found, n.router, routers, routersLack, before, after)
	found.Unsure = errors.Join(unlisted("networks", lacks), unlisted("routers", routersLack))
	return found, nil
}

// compare adds the resources of a kind that no KuryrNetwork names, and the KuryrNetworks that are
// ready and whose resource is missing in a list of all of its project. The objects were listed before
// and after the resources.
func (n *networks) compare(found *Findings, kind *Kind, all []sdn.NetworkSummary, lacks error, before, after map[ctrl.Request]*v1.KuryrNetwork) {
	there := map[string]bool{}
	for _, s := range all {
		there[s.ID] = true
		r := ownedBy(s.Owner, kind, s.ID)
		r.Name, r.Created = s.Name, s.Created
		if kn := after[kube.OwnerRequest(s.Owner)]; s.Owner.Kind == sdn.KindNetwork && (kn == nil || !n.names(kn, r)) {
			found.Unnamed = append(found.Unnamed, r)
		}
	}
	for req, kn := range before {
		id, made := n.resource(kn, kind)
		if made && id != "" && !there[id] && sdn.ErrorIn(kn.Spec.ProjectID, lacks) == nil && meta.IsStatusConditionTrue(kn.Status.Conditions, v1.ConditionReady) {
			found.Differ = append(found.Differ, req)
		}
	}
}

// resource returns the resource of a kind that a KuryrNetwork names, and whether Kuryr makes one for
// it.
func (n *networks) resource(kn *v1.KuryrNetwork, kind *Kind) (id string, made bool) {
	if kind == n.router {
		return kn.Status.RouterID, kn.Spec.Router != nil
	}
	return kn.Status.NetworkID, network.Makes(&kn.Spec)
}

// names reports whether a KuryrNetwork names a resource, or may be about to.
func (n *networks) names(kn *v1.KuryrNetwork, r Resource) bool {
	id, made := n.resource(kn, r.Kind)
	return made && (id == "" || id == r.ID)
}

// listRouters returns the routers that Kuryr has made. Without a KuryrNetwork that has or had one,
// and without a configuration that asks for some, it asks for none.
func (n *networks) listRouters(ctx context.Context, objects map[ctrl.Request]*v1.KuryrNetwork) ([]sdn.RouterSummary, error) {
	for _, kn := range objects {
		n.routed = n.routed || kn.Spec.Router != nil
	}
	if n.routed = n.routed || n.Settings.Rules().RoutersByNamespace; !n.routed {
		return nil, nil
	}
	return n.Cloud.ListRouters(ctx)
}

func (n *networks) wanted(ctx context.Context, r Resource) (bool, error) {
	var kn v1.KuryrNetwork
	there, err := r.owner(ctx, n.live, &kn)
	return there && n.names(&kn, r), err
}

// delete deletes a network with its subnets and their router interfaces, unless a port is in it.
func (n *networks) delete(ctx context.Context, r Resource) error {
	is, err := n.Cloud.Network(ctx, r.ID)
	if errors.Is(err, sdn.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	used, err := n.Cloud.InUse(ctx, r.ID)
	if err != nil {
		return err
	}
	if len(used) > 0 { // a port that lost the router would be cut off while it keeps the network
		return fmt.Errorf("%w: port %s of %q and %d others are in it", errUsed, used[0].ID, used[0].DeviceOwner, len(used)-1)
	}
	for _, s := range is.Subnets {
		for _, router := range s.RouterIDs {
			if err := n.Cloud.RemoveRouterInterface(ctx, router, s.ID); err != nil {
				return ifUsed(err)
			}
		}
	}
	return ifUsed(n.Cloud.DeleteNetwork(ctx, r.ID))
}
