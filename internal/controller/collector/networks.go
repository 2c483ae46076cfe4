// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package collector

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
	"github.com/kuryr-go/kuryr/internal/sdn"
)

var networkOrphansDeleted = prometheus.NewCounter(prometheus.CounterOpts{
	Name: "kuryr_network_orphans_deleted_total",
	Help: "Networks of this cluster that no KuryrNetwork named and that were deleted, with their subnets.",
})

func init() { metrics.Registry.MustRegister(networkOrphansDeleted) }

// networks compares the networks of the cloud with the KuryrNetworks. A network is left over when a
// process was stopped before it could name the network and its KuryrNetwork is gone, and when the
// answer to its creation was lost and it was made twice.
type networks struct {
	NetworkOptions
	client client.Reader
	live   client.Reader // reads past the cache
	kind   *Kind
	router *Kind
	routed bool // a KuryrNetwork with a router of its own was seen
}

// NetworkOptions is what the collection of networks needs beyond the manager.
type NetworkOptions struct {
	Cloud    NetworkCloud
	Settings *settings.Live
	Making   *kube.Owners // held while a network is made and named for a KuryrNetwork
	Applier  networkApplier
}

// networkApplier checks a KuryrNetwork in the cloud, soon.
type networkApplier interface{ RequestCheck(req ctrl.Request) }

// NetworkCloud is what the SDN does for the collection of networks.
type NetworkCloud interface {
	sdn.Networks
	sdn.Routers
}

// Networks returns the inventory of networks and of the routers that Kuryr has made for them. One
// list compares all networks; it shows no subnets. Another one compares all routers.
func Networks(mgr ctrl.Manager, o NetworkOptions) *Inventory {
	n := &networks{NetworkOptions: o, client: mgr.GetClient(), live: mgr.GetAPIReader()}
	n.kind = &Kind{Name: "network", Take: n.take, Wanted: n.wanted, Delete: n.delete, Deleted: networkOrphansDeleted}
	n.router = &Kind{Name: "router", Take: n.take, Wanted: n.routerWanted, Delete: n.deleteRouter, Deleted: routerOrphansDeleted}
	return &Inventory{Name: "networks", Settings: o.Settings, comparison: n}
}

func (n *networks) tell(req ctrl.Request) { n.Applier.RequestCheck(req) }

func (n *networks) period() time.Duration {
	s := n.Settings.Load()
	if wait := s.Orphans.Interval.Duration; wait > 0 {
		return wait
	}
	return settings.CheckInterval(s.Services.CheckInterval.Duration)
}

// look lists the objects before and after the networks, so a network that is made between the lists
// has an object in the second list.
func (n *networks) look(ctx context.Context) (found Findings, err error) {
	before, err := n.objects(ctx)
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
	after, err := n.objects(ctx)
	if err != nil {
		return found, err
	}
	there := map[string]bool{}
	for _, s := range all {
		there[s.ID] = true
		if kn := after[kube.OwnerRequest(s.Owner)]; s.Owner.Kind == sdn.KindNetwork && !names(kn, s.ID) {
			found.Unnamed = append(found.Unnamed, Resource{Kind: n.kind, ID: s.ID, Owner: s.Owner})
		}
	}
	for req, kn := range before {
		made := kn.Spec.Mode == v1.NetworkNamespace || kn.Spec.Mode == v1.NetworkFlat
		if sdn.ErrorIn(kn.Spec.ProjectID, lacks) != nil {
			continue // the list says nothing about its network
		}
		if made && kn.Status.NetworkID != "" && !there[kn.Status.NetworkID] && meta.IsStatusConditionTrue(kn.Status.Conditions, v1.ConditionReady) {
			found.Missing = append(found.Missing, req)
		}
	}
	n.compareRouters(&found, routers, routersLack, before, after)
	found.Unsure = errors.Join(unlisted("networks", lacks), unlisted("routers", routersLack))
	return found, nil
}

func (n *networks) objects(ctx context.Context) (map[ctrl.Request]*v1.KuryrNetwork, error) {
	var list v1.KuryrNetworkList
	if err := n.client.List(ctx, &list, kube.ReadOnly); err != nil {
		return nil, fmt.Errorf("listing KuryrNetworks: %w", err)
	}
	all := make(map[ctrl.Request]*v1.KuryrNetwork, len(list.Items))
	for i := range list.Items {
		all[kube.RequestOf(&list.Items[i])] = &list.Items[i]
	}
	return all, nil
}

// names reports whether a KuryrNetwork names a network, or may be about to.
func names(kn *v1.KuryrNetwork, id string) bool {
	return kn != nil && (kn.Status.NetworkID == "" || kn.Status.NetworkID == id)
}

func (n *networks) wanted(ctx context.Context, r Resource) (bool, error) {
	var kn v1.KuryrNetwork
	err := n.live.Get(ctx, kube.OwnerRequest(r.Owner).NamespacedName, &kn)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("reading KuryrNetwork %s: %w", kube.OwnerRequest(r.Owner), err)
	}
	return names(&kn, r.ID), nil
}

// take prevents the owner from finding the network by its mark, and naming it, before the network is
// deleted.
func (n *networks) take(r Resource) (release func()) {
	release, _ = n.Making.Try(kube.OwnerRequest(r.Owner))
	return release
}

// delete deletes a network with its subnets and their router interfaces, unless a port is in it.
func (n *networks) delete(ctx context.Context, r Resource) (bool, error) {
	is, err := n.Cloud.Network(ctx, r.ID)
	if errors.Is(err, sdn.ErrNotFound) {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	// A port that lost the router would be cut off while it keeps the network.
	if used, err := n.Cloud.InUse(ctx, r.ID); err != nil || len(used) > 0 {
		if err == nil {
			ctrl.LoggerFrom(ctx).Info("a network that is left over has ports, so it stays", "network", r.ID, "ports", len(used), "example", used[0].ID, "deviceOwner", used[0].DeviceOwner)
		}
		return false, err
	}
	for _, s := range is.Subnets {
		for _, router := range s.RouterIDs {
			if err := n.Cloud.RemoveLeg(ctx, router, s.ID); err != nil {
				return false, inUse(err)
			}
		}
	}
	err = n.Cloud.DeleteNetwork(ctx, r.ID)
	return err == nil, inUse(err)
}

// inUse returns nil for an error that says that something is in the network: it is deleted later.
func inUse(err error) error {
	if errors.Is(err, sdn.ErrConflict) {
		return nil
	}
	return err
}
