// SPDX-FileCopyrightText: The Kuryr Authors
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	v1 "github.com/kuryr-go/kuryr/api/v1"
	"github.com/kuryr-go/kuryr/internal/controller/collector"
	"github.com/kuryr-go/kuryr/internal/controller/kube"
	"github.com/kuryr-go/kuryr/internal/controller/networks"
)

var networksBlocked = prometheus.NewGauge(prometheus.GaugeOpts{
	Name: "kuryr_networks_blocked",
	Help: "1 while namespaces are to have networks of their own and the API server lacks a kind for it, or the controller a permission.",
})

func init() { metrics.Registry.MustRegister(networksBlocked) }

// setupNetworks adds what serves the networks of namespaces once some namespace may have one. It is
// also on while a KuryrNetwork is left: otherwise the deletion of a namespace could wait forever.
func setupNetworks(mgr ctrl.Manager, o Options, objects *kube.Networks) error {
	parts := networkParts(mgr, o, objects)
	feature := &kube.Feature{
		Wanted: o.Settings.Networking,
		Still:  func() bool { return o.Settings.Rules().NetworksByNamespace },
		Left: func(ctx context.Context) (bool, error) {
			left, err := networksLeft(ctx, mgr.GetAPIReader())
			if !left && err == nil {
				objects.Lack()
			}
			return left, err
		},
		Needs:   networksNeed,
		Kinds:   []client.Object{&v1.KuryrNetwork{}},
		Lacks:   objects.Lack,
		Without: "Namespaces with a network or a project of their own are not served, only others are", Tell: o.Tell, Blocked: networksBlocked, Retry: o.Backoff.Rejected,
		Add: func(ctx context.Context, mgr ctrl.Manager) error {
			if err := addNetworks(ctx, mgr, o.Projects, objects, parts); err != nil {
				return fmt.Errorf("setting up the networks of namespaces: %w", err)
			}
			ctrl.LoggerFrom(ctx).Info("serving networks of namespaces")
			return nil
		},
	}
	return feature.AddTo(mgr)
}

// networkParts returns the planner, the applier and the inventory of networks; none if the SDN
// makes no networks.
func networkParts(mgr ctrl.Manager, o Options, objects *kube.Networks) []reconciler {
	if o.Networks == nil || o.Subnets == nil || o.SubnetPools == nil {
		return nil
	}
	objects.Guard()
	making := &kube.Owners{}
	applier := networks.NewApplier(mgr, networks.ApplierOptions{
		Cloud: o.Networks, Subnets: o.Subnets, Visibility: o.Visibility, Statuses: objects, Making: making, Settings: o.Settings, Backoff: o.Backoff, Slow: o.SlowDeletion,
	})
	planner := networks.NewPlanner(mgr, networks.PlannerOptions{Subnets: o.Subnets, Pools: o.SubnetPools, Uses: o.Networks, Settings: o.Settings, Backoff: o.Backoff})
	return []reconciler{planner, applier, collector.Networks(mgr, collector.NetworkOptions{
		Cloud: o.Networks, Settings: o.Settings, Making: making, Applier: applier,
	})}
}

func addNetworks(ctx context.Context, mgr ctrl.Manager, projects *Projects, objects *kube.Networks, parts []reconciler) error {
	if err := networks.Index(ctx, mgr); err != nil {
		return err
	}
	if err := objects.Serve(ctx, mgr); err != nil {
		return err
	}
	projects.networks.Store(true) // the parts below may ask
	for _, part := range parts {
		if err := part.Setup(mgr); err != nil {
			return err
		}
	}
	return nil
}

// networksNeed are the permissions that the networks of namespaces need beyond those for pods.
var networksNeed = []kube.Need{
	{Group: v1.GroupVersion.Group, Resource: "kuryrnetworks", Verbs: []string{"get", "list", "watch", "create", "patch", "delete"}},
	{Group: v1.GroupVersion.Group, Resource: "kuryrnetworks", Subresource: "status", Verbs: []string{"patch"}},
}

// networksLeft reports whether the cluster has a KuryrNetwork. A controller without the permission
// to list them has created none.
func networksLeft(ctx context.Context, live client.Reader) (bool, error) {
	list := metaList(v1.GroupVersion.WithKind("KuryrNetworkList"))
	err := live.List(ctx, list, client.Limit(1))
	if kube.NotServed(err) {
		return false, nil
	}
	return len(list.Items) > 0, err
}
