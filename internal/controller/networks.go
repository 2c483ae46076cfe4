// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/collector"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/networks"
	"github.com/kuryr-go/kuryr/internal/controller/settings"
)

var networksBlocked = kube.Gauge("kuryr_networks_blocked", "1 if a CRD or a permission of the controller that networks of namespaces need is missing.")

// setupNetworks adds what serves the networks of namespaces once some namespace may have one.
func setupNetworks(mgr ctrl.Manager, o Options, objects *kube.Networks) error {
	var parts []reconciler // none if the SDN makes no networks
	if o.Networks != nil && o.Subnets != nil && o.SubnetPools != nil {
		objects.RequireVerification()
		making := &kube.Owners{}
		planner := networks.NewPlanner(mgr, networks.PlannerOptions{Subnets: o.Subnets, Pools: o.SubnetPools, Uses: o.Networks, Settings: o.Settings, Shards: o.Shards, Backoff: o.Backoff})
		applier := networks.NewApplier(mgr, networks.ApplierOptions{
			Cloud: o.Networks, Subnets: o.Subnets, Visibility: o.Visibility, Statuses: objects, Making: making, Settings: o.Settings, Shards: o.Shards, Backoff: o.Backoff, Slow: o.SlowDeletion, Late: o.Late,
		})
		parts = []reconciler{planner, applier, collector.Networks(mgr, collector.NetworkOptions{
			Cloud: o.Networks, Settings: o.Settings, Shards: o.Shards, Making: making, Applier: applier,
		})}
	}
	feature := &kube.Feature{
		Parts:   networksParts{o.Settings, o.Shards, mgr.GetAPIReader(), o.Projects, objects, parts},
		Wanted:  o.Settings.Networking,
		Needs:   permissionsForNetworks,
		Kinds:   []client.Object{&v1.KuryrNetwork{}},
		Without: "Namespaces with a network or a project of their own are not served, only others are", Tell: o.Tell, Blocked: networksBlocked, Retry: o.Backoff.Rejected, Shards: o.Shards,
	}
	return feature.AddTo(mgr)
}

// networksParts are what serves the networks of namespaces. It is also added while a KuryrNetwork is
// left: otherwise the deletion of a namespace could wait forever.
type networksParts struct {
	settings *settings.Live
	shards   kube.Shards
	live     client.Reader // reads past the cache
	projects *Projects
	objects  *kube.Networks
	parts    []reconciler
}

// Wanted implements kube.Parts.
func (n networksParts) Wanted() bool { return n.settings.Rules().NetworksByNamespace }

// Lacks implements kube.Parts.
func (n networksParts) Lacks() { n.objects.SetUnavailable() }

// Left reports whether the cluster has a KuryrNetwork. A controller without the permission to list
// them has created none.
func (n networksParts) Left(ctx context.Context) (bool, error) {
	list := metaList(v1.GroupVersion.WithKind("KuryrNetworkList"))
	err := n.live.List(ctx, list, client.Limit(1))
	if kube.NotServed(err) {
		err = nil
	}
	if err == nil && len(list.Items) == 0 {
		n.objects.SetUnavailable()
	}
	return len(list.Items) > 0, err
}

// Add implements kube.Parts.
func (n networksParts) Add(ctx context.Context, mgr ctrl.Manager) error {
	n.shards.Cached(&v1.KuryrNetworkList{})
	err := errors.Join(networks.Index(ctx, mgr), n.objects.Serve(ctx, mgr))
	if err == nil {
		n.projects.networks.Store(true) // the parts may ask
		err = addAll(mgr, n.parts)
	}
	if err != nil {
		return fmt.Errorf("setting up the networks of namespaces: %w", err)
	}
	ctrl.LoggerFrom(ctx).Info("serving networks of namespaces")
	return nil
}
